"""``map_impl``, ``scan`` and ``associative_scan``: a function of slices along the first dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from telegrad._tensor.tensor import Tensor
from telegrad.func import vmap
from telegrad_protocol.errors import ArgumentError

from ..control_flow import require_same
from .operators import FunctionOperator

tg: Any = import_module("telegrad")
Function = Callable[..., Any]
Leaves = Sequence[Any]


def stacked(name: str, outputs: Sequence[Leaves]) -> list[Any]:
    """Stack each of the leaves that a function has returned several times; all must be tensors."""
    others = [leaf for output in outputs for leaf in output if not isinstance(leaf, Tensor)]
    if others:
        raise ArgumentError(f"{name}: the function must return tensors, or trees of them, not {others[0]!r}")
    return [tg.stack(parts) for parts in zip(*outputs, strict=True)]


def _map(f: Function, xs: Leaves, args: Leaves) -> list[Any]:
    return stacked("map", [f(*slices, *args) for slices in zip(*[x.unbind(0) for x in xs], strict=True)])


def _scan(combine_fn: Function, init: Leaves, xs: Leaves, additional: Leaves) -> list[Any]:
    carry, outputs = list(init), []
    for place in range(len(xs[0])):
        made = combine_fn(*carry, *[x[place] for x in xs], *additional)
        carry, output = list(made[: len(init)]), made[len(init) :]
        require_same("scan", "init and carry", list(init), carry)
        outputs.append(output)
    return [*carry, *stacked("scan", outputs)]


def _associative_scan(combine_fn: Function, xs: Leaves, additional: Leaves) -> list[Any]:
    """Return what the function makes of all slices up to each one, in about ``2 log2(length)`` calls."""

    def combine_slices(first: Leaves, second: Leaves) -> list[Any]:
        combined = [*combine_fn(*first, *second, *additional)]
        require_same("associative_scan", "the results of combine_fn and xs", combined, [*first], ("shape",))
        return combined

    combine = vmap(combine_slices)

    def scan_pairs(parts: Leaves) -> list[Any]:
        length = len(parts[0])
        if length < 2:
            return [*parts]
        odd = scan_pairs(combine([x[: length - 1 : 2] for x in parts], [x[1::2] for x in parts]))
        even = [x[:1] for x in parts]
        if length > 2:
            rest = combine([x[: (length - 1) // 2] for x in odd], [x[2::2] for x in parts])
            even = [tg.cat([first, others]) for first, others in zip(even, rest, strict=True)]
        return [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]

    return scan_pairs(xs)


def _interleaved(even: Any, odd: Any) -> Any:
    """Return the slices of two tensors by turns; the first may have one more."""
    paired = tg.stack([even[: len(odd)], odd], 1).flatten(0, 1)
    return tg.cat([paired, even[len(odd) :]]) if len(even) > len(odd) else paired


def _first(xs: Leaves) -> list[Any]:
    return [x[0] for x in xs]


map_impl: Final = FunctionOperator("map_impl", _map, lambda xs, args: [[*_first(xs), *args]], ["body_graph"], 2)
scan: Final = FunctionOperator(
    "scan", _scan, lambda init, xs, additional: [[*init, *_first(xs), *additional]], ["scan_combine_graph"], 3
)
associative_scan: Final = FunctionOperator(
    "associative_scan", _associative_scan, lambda xs, additional: [[*_first(xs), *_first(xs), *additional]],
    ["associative_scan_combine_graph"], 2,
)  # fmt: skip
