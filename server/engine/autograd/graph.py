"""The tape: nodes, their edges, what they save, and what autograd knows of a value.

A node never holds a value that holds the node: a formula that names ``out`` gets an alias without history, so that a
graph is freed by reference counts alone.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ReferenceType, ref

from server.engine import context, keys
from server.engine.value import AutogradMeta, Value
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

if TYPE_CHECKING:
    from collections.abc import Sequence

next_sequence = itertools.count(1).__next__
"""A number greater than those of all nodes that there are, and less than those of all that come."""
_LAST = 1 << 62
"""What makes the sequence numbers of a graph's ends the highest of all."""


Edge: TypeAlias = "tuple[Node, int]"
"""A node and the number of one of its outputs: where a gradient flows to. Made with every operation, so no class."""


class Node:
    """A function in the backward graph."""

    __slots__ = ("__weakref__", "edges", "metas", "retained", "sequence")

    edges: Sequence[Edge | None]
    retained: dict[int, ReferenceType[Value]] | None

    def __init__(self, edges: Sequence[Edge | None], metas: tuple[Meta, ...]) -> None:
        self.sequence = next_sequence()
        self.edges = edges
        self.metas = metas
        self.retained = None

    @property
    def name(self) -> str:
        """What PyTorch prints as ``grad_fn``."""
        return type(self).__name__

    def retain(self, output: int, value: Value) -> None:
        """Keep the gradient of an output in ``value.grad``."""
        if self.retained is None:
            self.retained = {}
        self.retained[output] = ref(value)

    def forget(self, value: Value) -> bool:
        """No longer keep a gradient in ``value.grad``; tells whether one was to be kept."""
        found = [output for output, holder in (self.retained or {}).items() if holder() is value]
        for output in found:
            del self.retained[output]  # type: ignore[union-attr]
        return bool(found)

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        """Gradients for ``edges`` from the gradients of the outputs."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop what was saved; the node cannot run again."""


class AccumulateGrad(Node):
    """The end of the graph: adds into a leaf's ``.grad``."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Value) -> None:
        self.sequence = next_sequence() + _LAST
        self.edges = ()
        self.metas = (leaf.meta,)
        self.retained = None
        self.leaf = leaf

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        return ()


_UNRECORDED = AutogradMeta(True)
"""What values have for a history where none is looked at: formulas may ask whether they require a gradient."""


class Saved:
    """What backward needs of a value: its memory, the version that it had, and its history then.

    It holds a leaf itself, but never what is or may become a result: the result's history may lead back here, and the
    cycle would keep memory until a garbage collection.
    """

    __slots__ = ("array", "meta", "node", "output", "storage", "value", "version")

    node: Node | ReferenceType[Node] | None
    value: Value | None

    def __init__(self, value: Value) -> None:
        self.storage = storage = value.storage
        self.version = storage.version
        self.meta = value.meta
        known = value.autograd
        if known is None:
            self.node = None
        else:
            self.node = known.grad_fn
            self.output = known.output
            if self.node is None and known.requires_grad:
                self.value = value
                return
        self.value = None
        self.array = value._array

    def unpack(self, consumer: Node) -> Value:
        """The value, if nobody has modified it since; with its history, where gradients are recorded."""
        storage = self.storage
        if storage.version != self.version:
            raise self._modified(consumer)
        if self.value is not None:
            return self.value
        value = Value(storage, self.meta, storage.backend)
        value._array = self.array
        if self.node is not None:
            if context.current.excluded & keys.AUTOGRAD:
                value.autograd = _UNRECORDED
                return value
            node = self._creator()
            if node is not None:
                return with_history(value, node, self.output)
        return value

    def _creator(self) -> Node | None:
        return self.node  # type: ignore[return-value]

    def _modified(self, consumer: Node) -> AutogradError:
        node = None if self.value is not None else self._creator()
        origin = f"output {self.output} of {node.name}" if node is not None else f"an input of {consumer.name}"
        return AutogradError(
            "one of the values needed for gradient computation has been modified by an in-place operation: "
            f"{self.meta}, {origin}, is at version {self.storage.version}; "
            f"expected version {self.version} instead; clone it before you modify it"
        )


class SavedResult(Saved):
    """The same of a result of the very node that saves it, to which ``node`` is a weak reference."""

    __slots__ = ()

    node: ReferenceType[Node]

    def __init__(self, value: Value, creator: Node, output: int) -> None:
        self.storage = storage = value.storage
        self.version = storage.version
        self.meta = value.meta
        self.value = None
        self.array = value._array
        self.node = ref(creator)
        self.output = output

    def _creator(self) -> Node | None:
        return self.node()


class SavedList:
    """What backward needs of a list of tensors, of which some may be absent."""

    __slots__ = ("items",)

    def __init__(self, items: tuple[Any, ...]) -> None:
        self.items = items

    def unpack(self, consumer: Node) -> tuple[Any, ...]:
        """The list, its values as they were."""
        return tuple([item.unpack(consumer) if item.__class__ is Saved else item for item in self.items])


def with_history(value: Value, node: Node, output: int) -> Value:
    """Mark ``value`` as what ``node`` computed as its output number ``output``."""
    meta = value.autograd
    if meta is None:
        value.autograd = AutogradMeta(True, node, output)
    else:
        meta.requires_grad, meta.grad_fn, meta.output = True, node, output
    value.keys |= keys.AUTOGRAD
    return value


def make_leaf(value: Value, requires_grad: bool) -> None:
    """Set whether a leaf takes part in differentiation."""
    if value.autograd is None:
        value.autograd = AutogradMeta()
    value.autograd.requires_grad = requires_grad
    value.keys = value.keys | keys.AUTOGRAD if requires_grad or value.base is not None else value.keys & ~keys.AUTOGRAD


def accumulator_of(leaf: Value) -> AccumulateGrad:
    """The one live ``AccumulateGrad`` of a leaf."""
    meta = leaf.autograd
    assert meta is not None
    if meta.accumulator is not None:
        node: AccumulateGrad | None = meta.accumulator()
        if node is not None:
            return node
    made = AccumulateGrad(leaf)
    meta.accumulator = ref(made)
    return made
