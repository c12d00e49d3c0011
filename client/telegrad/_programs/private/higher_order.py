"""``torch._higher_order_ops``: operators that take functions, which run in Python on the tensors themselves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad.compiler import cond as cond
from telegrad.compiler import while_loop as while_loop
from telegrad.compiler.control_flow import require_same
from telegrad.compiler.function_operators import loops
from telegrad.compiler.function_operators.operators import FlatFunction
from telegrad.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.layout import wrap_dim


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
    given, structure = tree_flatten(args)
    tensors = [leaf for leaf in given if isinstance(leaf, Tensor)]

    def of_slices(*flat: Any) -> Any:
        passed = iter(flat[len(leaves) :])
        rest = tree_unflatten([next(passed) if isinstance(leaf, Tensor) else leaf for leaf in given], structure)
        return f(tree_unflatten(list(flat[: len(leaves)]), spec), *rest)

    flat_f = FlatFunction(of_slices)
    return tree_unflatten(list(loops.map_impl(flat_f, leaves, tensors)), flat_f.returned)


def foreach_map(op: Callable[..., Any], *operands: Any, **kwargs: Any) -> Any:
    """Return the list of ``op`` of the elements of lists among the operands, with the other operands beside each.

    The shortest list ends it. Without a list it is ``op(*operands)``. Keywords have no effect, as in PyTorch.
    """
    lists = [operand for operand in operands if isinstance(operand, (list, tuple))]
    if not lists:
        return op(*operands)
    columns = [operand if isinstance(operand, (list, tuple)) else repeat(operand) for operand in operands]
    return [op(*row) for row in zip(*columns, strict=False)]


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

    ``xs`` is a tree of tensors; ``combine_fn`` takes two such trees of slices, which lack ``dim``, returns a third, and
    has to be associative. It is called by ``vmap``.
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ArgumentError(
            f"associative_scan: Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}"
        )
    leaves, spec, dim = _leaves_along("associative_scan", combine_fn, xs, dim, reverse)
    if not leaves:
        raise ArgumentError("associative_scan: Expected at least 1 xs leaf")

    def combine(*flat: Any) -> Any:
        return combine_fn(*[tree_unflatten(list(part), spec) for part in (flat[: len(leaves)], flat[len(leaves) :])])

    flat_combine = FlatFunction(combine)
    scanned = loops.associative_scan(flat_combine, _turned(leaves, dim, reverse))
    if flat_combine.returned not in (None, spec):
        raise ArgumentError(f"associative_scan: combine_fn takes {spec} and returns {flat_combine.returned}")
    return tree_unflatten([(x.flip(0) if reverse else x).movedim(0, dim) for x in scanned], spec)


def _turned(leaves: list[Any], dim: int, reverse: bool) -> list[Any]:
    """Return tensors whose first dimension is the one to go along, from its beginning."""
    moved = [leaf.movedim(dim, 0) if dim else leaf for leaf in leaves]
    return [leaf.flip(0) for leaf in moved] if reverse else moved


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
    structure = tree_flatten(init)[1]

    def combine(*flat: Any) -> Any:
        slices = tree_unflatten(list(flat[len(carried) :]), spec)
        made = combine_fn(tree_unflatten(list(flat[: len(carried)]), structure), slices)
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise ArgumentError("scan: combine_fn must return two values, the carry and the output")
        require_same("scan", "init and carry", init, made[0])
        return tuple(made)

    flat_combine = FlatFunction(combine)
    made = loops.scan(flat_combine, carried, _turned(leaves, dim, reverse))
    outputs = [x.flip(0) if reverse else x for x in made[len(carried) :]]
    moved = [x.movedim(0, min(dim, x.ndim - 1)) if dim else x for x in outputs]
    carry, output = tree_unflatten([*made[: len(carried)], *moved], flat_combine.returned)
    return carry, output
