"""Saved tensors that the client's program keeps in a form of its own, and gives back when a pass needs them.

What is packed leaves the node at once, so that its memory can be freed. A pass stops at the node, and the client gives
each tensor for that one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from server.engine import context, keys
from server.engine import functional as F
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError, ProtocolError, ShapeError

from .graph import UNRECORDED, AccumulateGrad, Node, SavedOutput, SavedTensor, SavedTensorList, with_history
from .inplace import edge_of
from .node import OpNode
from .shown_nodes import is_composite, is_of, saved_name, shown_outputs


class PackedTensor:
    """What stands in a node for a tensor that the program keeps: its meta, its history, and the tensor once given."""

    __slots__ = ("given", "meta", "node", "output")

    def __init__(self, saved: SavedTensor) -> None:
        self.meta = saved.meta
        edge = edge_of(saved.value) if saved.value is not None else None
        self.node, self.output = edge or (saved.node, 0 if saved.node is None else saved.output)
        self.given: Value | None = None

    def unpack(self, consumer: Node) -> Value:
        """Return the tensor that was given for this pass, with the history that the saved one had.

        Raises AutogradError where none was given.
        """
        given, self.given = self.given, None
        if given is None:
            raise AutogradError(
                f"{consumer.name}: a saved tensor {self.meta} is kept by saved_tensors_hooks of the program, and this "
                "pass has not asked for it"
            )
        value = Value(given.storage, given.meta, given.backend)
        if self.node is None:
            return value
        if context.current.excluded & keys.AUTOGRAD:
            value.autograd = UNRECORDED
            return value
        creator = self.node if isinstance(self.node, Node) else self.node()
        return value if creator is None else with_history(value, creator, self.output)


class PackedTensorList(SavedTensorList):
    """A list of which some tensors are packed."""

    __slots__ = ()

    def unpack(self, consumer: Node) -> tuple[Any, ...]:
        return tuple(
            [item.unpack(consumer) if isinstance(item, SavedTensor | PackedTensor) else item for item in self.items]
        )


class PackedNode(OpNode):
    """A node of which something is packed: another class, so that no pass is recorded or replayed through it."""

    __slots__ = ()


class Packed(NamedTuple):
    """A tensor that has left its node: without history, and what history it had.

    ``name`` is empty where the node is not the one that the client sees; ``place`` is its place in a list.
    """

    stand_in: PackedTensor
    value: Value
    history: str
    name: str
    place: int


def pack(shown: Node, name: str, has_one_result: bool, limit: int) -> list[Packed]:
    """Take up to ``limit`` tensors out of what a call of operation ``name`` has saved, operands before results."""
    items = [item for node in nodes_of(shown, name, has_one_result) for item in _saved_in(node)]
    items.sort(key=lambda item: isinstance(item[3], SavedOutput))
    return [_packed(*item, shown) for item in items[:limit]]


def pack_one(node: Node, name: str, place: int) -> Packed | None:
    """Take one tensor out of a node; None where it is not there, or packed already."""
    for owner, slot, number, item in _saved_in(node) if isinstance(node, OpNode) else ():
        if saved_name(owner, slot) == name and max(number, 0) == place:
            return _packed(owner, slot, number, item, node)
    return None


def nodes_of(shown: Node, name: str, has_one_result: bool) -> list[OpNode]:
    """Return the nodes that one call of operation ``name`` has made, the last first; none if it made another one.

    Of a composite with several results none is returned: a pass need not reach all of its nodes by way of ``shown``.
    """
    if not isinstance(shown, OpNode) or not is_of(shown, name):
        return []
    if not is_composite(shown, name):
        return [shown]
    if not has_one_result:
        return []
    begins = {edge[0] for edge in shown.composed[1]}
    nodes, stack = [shown], [shown]
    while stack:
        for edge in stack.pop().edges:
            if edge is None or isinstance(edge[0], AccumulateGrad) or edge[0] in begins or edge[0] in nodes:
                continue
            if isinstance(edge[0], OpNode):
                nodes.append(edge[0])
                stack.append(edge[0])
    return nodes


def give(stand_ins: Sequence[PackedTensor], values: Sequence[Value]) -> None:
    """Give the tensors that a pass is about to need; another type is cast to that of the saved one."""
    if len(stand_ins) != len(values):
        raise ProtocolError(f"{len(values)} tensors for {len(stand_ins)} that are packed")
    for stand_in, value in zip(stand_ins, values, strict=True):
        meta = stand_in.meta
        if value.meta.shape != meta.shape or value.meta.device is not meta.device:
            raise ShapeError(f"saved_tensors_hooks: unpack_hook returned {value.meta} for a tensor that was {meta}")
        with context.grad_mode(False):
            stand_in.given = value if value.meta.dtype is meta.dtype else F._to_copy(value, dtype=meta.dtype)


def _saved_in(node: OpNode) -> list[tuple[OpNode, int, int, SavedTensor]]:
    """Return what a node has saved and is not packed: the node, the slot, the place in a list there or -1, the item."""
    listed = [
        (slot, place, item)
        for slot, whole in enumerate(node.saved or ())
        for place, item in (enumerate(whole.items) if isinstance(whole, SavedTensorList) else ((-1, whole),))
    ]
    return [(node, slot, place, item) for slot, place, item in listed if isinstance(item, SavedTensor)]


def _packed(node: OpNode, slot: int, place: int, item: SavedTensor, shown: Node) -> Packed:
    with context.grad_mode(False):
        value = item.unpack(node)
    if isinstance(item, SavedOutput):
        history = "result" if item.output in shown_outputs(node) else ""
    else:
        history = "leaf" if item.value is not None else "operand" if item.node is not None else ""
    stand_in = PackedTensor(item)
    saved: list[Any] = node.saved  # type: ignore[assignment]
    if place < 0:
        saved[slot] = stand_in
    else:
        items = saved[slot].items
        saved[slot] = PackedTensorList((*items[:place], stand_in, *items[place + 1 :]))
    name = saved_name(node, slot) if node is shown else ""
    node.__class__ = PackedNode
    return Packed(stand_in, Value(value.storage, value.meta, value.backend), history, name, max(place, 0))
