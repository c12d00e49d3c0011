"""Which operands of an operation are indices, and of what range: told by metas, once for each plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from server.engine.operators import Operator
from server.engine.value import Value
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

from .elements import Elements, is_integral, tells


class IndexRange(NamedTuple):
    """The indices that an operation takes: from ``low`` to below ``end``, and ``ignored``, which is no index."""

    low: int
    end: int
    ignored: int | None = None

    def holds(self, elements: Elements) -> bool:
        """Whether all elements are such indices."""
        is_low = elements.low >= self.low or elements.low == elements.negative == self.ignored
        return elements.high < self.end and is_low


class Indices(NamedTuple):
    """An operand that holds indices: its position among the arguments, its place in a list there, and their range."""

    position: int
    place: int | None
    range: IndexRange

    def of(self, args: tuple[Any, ...]) -> Any:
        """Return the operand, given the arguments of a call: values, metas, or what stands for either."""
        item = args[self.position]
        return item if self.place is None else item[self.place]

    def are_known_to_be_good(self, args: tuple[Any, ...]) -> bool:
        """Whether the host knows that all of them are in range; it waits for nothing."""
        value: Value = self.of(args)
        return are_known(value, value.meta, self.range)


def are_known(value: Value, read: Meta, range: IndexRange) -> bool:
    """Whether the host knows that what is read of a value in a layout is in a range; it waits for nothing.

    Memory that is lent by somebody else may be written to later by what does not count that, such as a captured graph.
    """
    storage = value.storage
    known: Any = getattr(storage, "elements", None)
    return storage.keeper is None and tells(known, storage, read) and range.holds(known)


def takes_indices(operator: Operator) -> bool:
    """Whether an operation takes indices, which a device may find out of range."""
    return _name_of(operator.op) in _RULES


def indices_in(op: Op, bound: tuple[Any, ...]) -> tuple[Indices, ...] | None:
    """Return the indices among arguments with metas in place of tensors; None where it takes none.

    Masks are no indices.
    """
    rule = _RULES.get(_name_of(op))
    if rule is None:
        return None
    positions = {param.name: position for position, param in enumerate(op.params)}
    found = rule({name: bound[position] for name, position in positions.items() if position < len(bound)})
    indices = [Indices(positions[name], place, range) for name, place, range in found]
    return tuple([one for one in indices if is_integral(one.of(bound))])


def _name_of(op: Op) -> str:
    return op.base.name.removesuffix("_").removesuffix(".value")


_Found = Iterator[tuple[str, "int | None", IndexRange]]


def _classes(args: dict[str, Any]) -> _Found:
    shape = args["input"].shape
    yield "target", None, IndexRange(0, shape[0 if len(shape) == 1 else 1], args["ignore_index"])


def _rows(args: dict[str, Any]) -> _Found:
    yield "input", None, IndexRange(0, args["weight"].shape[0])


def _along(args: dict[str, Any]) -> _Found:
    meta = args["input"]
    yield "index", None, IndexRange(0, meta.shape[args["dim"]] if meta.ndim else 1)


def _everywhere(args: dict[str, Any]) -> _Found:
    numel = math.prod(args["input"].shape)
    yield "index", None, IndexRange(-numel, numel)


def _in_dims(args: dict[str, Any]) -> _Found:
    for place, (size, index) in enumerate(zip(args["input"].shape, args["indices"], strict=False)):
        if index is not None:
            yield "indices", place, IndexRange(-size, size)


_RULES: Final[dict[str, Callable[[dict[str, Any]], _Found]]] = {
    "_cross_entropy": _classes, "_nll_loss_forward": _classes, "_embedding": _rows, "take": _everywhere,
    "put": _everywhere, "index": _in_dims, "index_put": _in_dims,
    **dict.fromkeys(("gather", "index_select", "index_add", "index_copy", "index_fill"), _along),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _along),
}  # fmt: skip
