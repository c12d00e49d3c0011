"""``torch._higher_order_ops``: operators that take functions, which run in Python on the tensors themselves."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from telegrad.compiler import cond as cond
from telegrad.compiler import while_loop as while_loop
from telegrad.utils._pytree import tree_flatten, tree_unflatten

tg: Any = import_module("telegrad")


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """Return the stacked results of ``f(slice, *args)`` for each slice of a tree of tensors along their dimension 0."""
    leaves, spec = tree_flatten(xs)
    slices = [tree_unflatten(list(parts), spec) for parts in zip(*[leaf.unbind(0) for leaf in leaves], strict=True)]
    flat = [tree_flatten(f(one, *args)) for one in slices]
    stacked = [tg.stack(parts) for parts in zip(*[result for result, _ in flat], strict=True)]
    return tree_unflatten(stacked, flat[0][1])


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """Return what ``combine_fn`` makes of all slices up to each one along ``dim``, in about ``2 log2(length)`` calls.

    ``xs`` is a tree of tensors; ``combine_fn`` takes two such trees and has to be associative.
    """
    leaves, spec = tree_flatten(xs)
    leaves = [leaf.movedim(dim, 0).flip(0) if reverse else leaf.movedim(dim, 0) for leaf in leaves]

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        combined = combine_fn(*[tree_unflatten([x.movedim(0, dim) for x in part], spec) for part in (left, right)])
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
    """Return the last carry and the stacked outputs of ``carry, output = combine_fn(carry, slice)``."""
    leaves, spec = tree_flatten(xs)
    count = leaves[0].shape[dim]
    carry, outputs = init, []
    for place in reversed(range(count)) if reverse else range(count):
        carry, output = combine_fn(carry, tree_unflatten([leaf.select(dim, place) for leaf in leaves], spec))
        outputs.append(output)
    if reverse:
        outputs.reverse()
    flat = [tree_flatten(output)[0] for output in outputs]
    stacked = [tg.stack(parts) for parts in zip(*flat, strict=True)]
    return carry, tree_unflatten(stacked, tree_flatten(outputs[0])[1])
