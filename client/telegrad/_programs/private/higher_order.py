"""``torch._higher_order_ops``: operators that take functions, which run in Python on the tensors themselves."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import repeat
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.compiler import cond as cond
from telegrad.compiler import while_loop as while_loop
from telegrad.compiler.control_flow import require_same
from telegrad.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.layout import wrap_dim

tg: Any = import_module("telegrad")


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """Return the stacked results of ``f(slice, *args)`` for each slice of a tree of tensors along their dimension 0.

    Raises ArgumentError for what is no tensor, and for tensors of no or of different lengths.
    """
    leaves, spec = tree_flatten(xs)
    if not all([isinstance(leaf, Tensor) for leaf in leaves]):
        raise ArgumentError(f"map: Mapped xs can only consist of tensors. Got xs {leaves}.")
    if len({leaf.shape[0] for leaf in leaves}) > 1:
        shapes = [tuple(leaf.shape) for leaf in leaves]
        raise ArgumentError(f"map: Leading dimensions of mapped xs must be consistent. Got shapes {shapes}.")
    if not leaves or not leaves[0].shape[0]:
        raise ArgumentError("map: Leading dimensions of mapped xs cannot be 0.")
    slices = [tree_unflatten(list(parts), spec) for parts in zip(*[leaf.unbind(0) for leaf in leaves], strict=True)]
    flat = [tree_flatten(f(one, *args)) for one in slices]
    return tree_unflatten(_stacked("map", [results for results, _ in flat]), flat[0][1])


def foreach_map(op: Callable[..., Any], *operands: Any, **kwargs: Any) -> Any:
    """Return the list of ``op`` of the elements of lists among the operands, with the other operands beside each.

    The shortest list ends it. Without a list it is ``op(*operands)``. Keywords have no effect, as in PyTorch.
    """
    lists = [operand for operand in operands if isinstance(operand, (list, tuple))]
    if not lists:
        return op(*operands)
    columns = [operand if isinstance(operand, (list, tuple)) else repeat(operand) for operand in operands]
    return [op(*row) for row in zip(*columns, strict=False)]


def _stacked(name: str, outputs: list[list[Any]], dim: int = 0) -> list[Any]:
    """Stack the leaves of what a function has returned, along their last dimension at most; all must be tensors."""
    others = [leaf for output in outputs for leaf in output if not isinstance(leaf, Tensor)]
    if others:
        raise ArgumentError(f"{name}: the function must return tensors, or trees of them, not {others[0]!r}")
    stacked = [tg.stack(parts) for parts in zip(*outputs, strict=True)]
    return [leaf.movedim(0, min(dim, leaf.ndim - 1)) for leaf in stacked] if dim else stacked


def _leaves_along(name: str, function: Any, xs: Any, dim: int, reverse: Any) -> tuple[list[Any], TreeSpec, int]:
    """Return the tensors of a tree, its structure, and the dimension from the front; all is checked."""
    if not callable(function):
        raise ArgumentError(f"{name}: Combine_fn must be a callable, but got {function}")
    if not isinstance(reverse, bool):
        raise ArgumentError(f"{name}: Reverse must be a bool, but got {type(reverse)}")
    leaves, spec = tree_flatten(xs)
    if not all([isinstance(leaf, Tensor) for leaf in leaves]):
        raise ArgumentError(f"{name}: All xs leaves must be a Tensor, but got {leaves}")
    if not leaves:
        return [], spec, 0
    dim = wrap_dim(name, dim, leaves[0].ndim)
    if any([leaf.ndim <= dim or not leaf.shape[dim] for leaf in leaves]):
        raise ArgumentError(
            f"{name}: All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0"
        )
    if len({leaf.shape[dim] for leaf in leaves}) > 1:
        raise ArgumentError(f"{name}: All xs leaves must have the same size in the dimension {dim}")
    return leaves, spec, dim


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """Return what ``combine_fn`` makes of all slices up to each one along ``dim``, in about ``2 log2(length)`` calls.

    ``xs`` is a tree of tensors; ``combine_fn`` takes two such trees, returns a third, and has to be associative.
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ArgumentError(
            f"associative_scan: Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    leaves, spec, dim = _leaves_along("associative_scan", combine_fn, xs, dim, reverse)
    if not leaves:
        raise ArgumentError("associative_scan: Expected at least 1 xs leaf")
    leaves = [leaf.movedim(dim, 0).flip(0) if reverse else leaf.movedim(dim, 0) for leaf in leaves]

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        first, second = [tree_unflatten([x.movedim(0, dim) for x in part], spec) for part in (left, right)]
        combined = combine_fn(first, second)
        require_same("associative_scan", "the results of combine_fn and xs", combined, first, ("shape",))
        return [x.movedim(dim, 0) for x in tree_flatten(combined)[0]]

    def scan_pairs(parts: list[Any]) -> list[Any]:
        length = len(parts[0])
        if length < 2:
            return parts
        odd = scan_pairs(combine([x[: length - 1 : 2] for x in parts], [x[1::2] for x in parts]))
        even = [x[:1] for x in parts]
        if length > 2:
            rest = combine([x[: (length - 1) // 2] for x in odd], [x[2::2] for x in parts])
            even = [tg.cat([first, others]) for first, others in zip(even, rest, strict=True)]
        return [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]

    scanned = scan_pairs(leaves)
    return tree_unflatten([(x.flip(0) if reverse else x).movedim(0, dim) for x in scanned], spec)


def _interleaved(even: Any, odd: Any) -> Any:
    """Return the slices of two tensors by turns; the first may have one more."""
    paired = tg.stack([even[: len(odd)], odd], 1).flatten(0, 1)
    return tg.cat([paired, even[len(odd) :]]) if len(even) > len(odd) else paired


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """Return the last carry and the stacked outputs of ``carry, output = combine_fn(carry, slice)``.

    ``init`` and ``xs`` are trees of tensors, and each carry is like ``init``. Outputs are stacked along ``dim``.
    Without tensors to go through, ``init`` and an empty list are returned.
    """
    leaves, spec, dim = _leaves_along("scan", combine_fn, xs, dim, reverse)
    carried = tree_flatten(init)[0]
    if not carried:
        raise ArgumentError("scan: scan() operator requires init leaves.")
    if not all([isinstance(leaf, Tensor) for leaf in carried]):
        raise ArgumentError(f"scan: All init leaves must be a Tensor, but got {carried}")
    if not leaves:
        return init, []
    count, carry, outputs = leaves[0].shape[dim], init, []
    for place in reversed(range(count)) if reverse else range(count):
        made = combine_fn(carry, tree_unflatten([leaf.select(dim, place) for leaf in leaves], spec))
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise ArgumentError("scan: combine_fn must return two values, the carry and the output")
        require_same("scan", "init and carry", init, made[0])
        carry, output = made
        outputs.append(output)
    if reverse:
        outputs.reverse()
    stacked = _stacked("scan", [tree_flatten(one)[0] for one in outputs], dim)
    return carry, tree_unflatten(stacked, tree_flatten(outputs[0])[1])
