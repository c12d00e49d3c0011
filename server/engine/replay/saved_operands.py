"""Which saved tensor an operand of a recorded pass is: told by the value that it was unpacked to.

Memory and meta do not tell: a node may have saved two tensors that are the same memory, such as two leaves made of one
tensor, and in the next pass they are two tensors. Knows nodes, and nothing of programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ReferenceType, ref

from server.engine.autograd import sparing
from server.engine.autograd.graph import UNRECORDED, Node, SavedTensorList
from server.engine.autograd.node import OpNode
from server.engine.value import Value

Place = tuple[int, int]
"""Where a node has saved a tensor: the slot, and the element of a list there or -1."""


class SavedOperands:
    """The values that one node's saved tensors were unpacked to, while the node is applied."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, tuple[ReferenceType[Value], Place]] = {}

    def apply(self, node: OpNode, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        """Do what ``node.apply`` does; until it returns, ``place_of`` tells its operands."""
        saved = node.saved
        if saved is not None:
            node.saved = [_Watched(self, item, (slot, -1)) for slot, item in enumerate(saved)]  # type: ignore[misc]
        try:
            return node.apply(grads)
        finally:
            node.saved = saved
            self._places.clear()

    def take_turns(
        self, node: OpNode, grads: list[Value | None], parted: sparing.Parted
    ) -> Sequence[Value | None]:  # fmt: skip
        """Do what ``sparing.apply`` does, in the same way; nothing here keeps what the node lets go of."""
        unpacked = [self.unpacked(item, (slot, -1), node) for slot, item in enumerate(node.saved or ())]
        try:
            return sparing.take_turns(node, grads, unpacked, parted)
        finally:
            self._places.clear()

    def place_of(self, value: Value) -> Place | None:
        """Return where the node has saved a value; None for any other value, also on the same memory."""
        known = self._places.get(id(value))
        return None if known is None or known[0]() is not value else known[1]

    def unpacked(self, item: Any, place: Place, consumer: Node) -> Any:
        """Return what something saved is unpacked to; a tensor is a value that nothing else is."""
        if isinstance(item, SavedTensorList):
            return tuple([self.unpacked(one, (place[0], number), consumer) for number, one in enumerate(item.items)])
        if not hasattr(item, "unpack"):
            return item
        value = item.unpack(consumer)
        if item.value is not None:  # a leaf is unpacked to itself, which may be saved twice, or be a gradient
            value = value.alias()
            value.autograd = UNRECORDED
        self._places[id(value)] = ref(value), place
        return value


class _Watched:
    """Stands for something that a node has saved."""

    __slots__ = ("_item", "_operands", "_place")

    def __init__(self, operands: SavedOperands, item: Any, place: Place) -> None:
        self._operands, self._item, self._place = operands, item, place

    def unpack(self, consumer: Node) -> Any:
        """Return what the node is to work on."""
        return self._operands.unpacked(self._item, self._place, consumer)
