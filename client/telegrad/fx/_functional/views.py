"""Operators that show the memory of what they are given: how what is written into a view changes what it is of."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

from telegrad.fx.node import Node
from telegrad.ops import aten
from telegrad_protocol.errors import NotSupportedError

Emit = Callable[..., Node]
"""Adds the call of an operator to the graph that is made."""


class ViewStep:
    """One operator between a tensor and a view of it; ``place`` is that of the view among several results."""

    def __init__(self, target: Any, rest: tuple[Any, ...], kwargs: dict[str, Any], place: int | None = None) -> None:
        self.target, self.rest, self.kwargs, self.place = target, rest, kwargs, place

    @property
    def name(self) -> str:
        """The name of the operator without its library and overload."""
        name: str = self.target.name()
        return name.partition("::")[2].partition(".")[0]

    def argument(self, name: str) -> Any:
        """Return an argument of the operator, or its default."""
        for place, argument in enumerate(self.target._schema.arguments[1:]):
            if argument.name == name:
                given = self.rest[place] if place < len(self.rest) else argument.default_value
                return self.kwargs.get(name, given)
        raise NotSupportedError(f"functionalize: {self.target} has no argument {name!r}")

    def written(self, emit: Emit, parent: Node, child: Node) -> Node:
        """Return the node of what ``parent`` is after this view of it has become ``child``."""
        inverse = _INVERSES.get(self.name)
        if inverse is None:
            raise NotSupportedError(
                f"functionalize: the function writes into what {self.target} returns, which cannot be said without a "
                "write; write into a copy of it"
            )
        return inverse(self, emit, parent, child)


def _reshaped(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    if step.name == "view" and step.target is aten.view.dtype:
        return emit(aten.view.dtype, child, parent.meta["val"].dtype)
    is_contiguous = child.meta["val"].is_contiguous()
    return emit((aten.view if is_contiguous else aten.reshape).default, child, list(parent.meta["val"].shape))


def _permuted(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    dims = [dim % len(parent.meta["val"].shape) for dim in step.argument("dims")]
    return emit(aten.permute.default, child, [dims.index(place) for place in range(len(dims))])


def _again(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    return emit(step.target, child, *step.rest, **step.kwargs)


def _selected(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    index = step.argument("index") if step.place is None else step.place
    return emit(aten.select_scatter.default, parent, child, step.argument("dim"), index)


def _sliced(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    bounds = [step.argument(name) for name in ("dim", "start", "end", "step")]
    return emit(aten.slice_scatter.default, parent, child, *bounds)


def _split(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    dim, place = step.argument("dim"), step.place or 0
    if step.name == "split":
        start = place * step.argument("split_size")
    else:
        start = [0, *itertools.accumulate(step.argument("split_sizes"))][place]
    return emit(aten.slice_scatter.default, parent, child, dim, start, start + child.meta["val"].shape[dim])


def _diagonal(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    return emit(aten.diagonal_scatter.default, parent, child, *[step.argument(n) for n in ("offset", "dim1", "dim2")])


def _strided(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    layout = [step.argument(name) for name in ("size", "stride", "storage_offset")]
    return emit(aten.as_strided_scatter.default, parent, child, *layout)


def _same(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    return child


def _real(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    return emit(aten.complex.default, child, emit(aten.imag.default, parent))


def _imaginary(step: ViewStep, emit: Emit, parent: Node, child: Node) -> Node:
    return emit(aten.complex.default, emit(aten.real.default, parent), child)


_INVERSES: Final[dict[str, Callable[[ViewStep, Emit, Node, Node], Node]]] = {
    **dict.fromkeys(["view", "_unsafe_view", "squeeze", "unsqueeze", "reshape", "flatten", "unflatten"], _reshaped),
    **dict.fromkeys(["t", "transpose", "swapaxes", "swapdims"], _again),
    **dict.fromkeys(["select", "unbind"], _selected),
    **dict.fromkeys(["split", "split_with_sizes"], _split),
    **dict.fromkeys(["detach", "alias", "view_as", "lift_fresh"], _same),
    "permute": _permuted, "slice": _sliced, "diagonal": _diagonal, "as_strided": _strided, "real": _real,
    "imag": _imaginary,
    "view_as_real": lambda step, emit, parent, child: emit(aten.view_as_complex.default, child),
    "view_as_complex": lambda step, emit, parent, child: emit(aten.view_as_real.default, child),
}  # fmt: skip
