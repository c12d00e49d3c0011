"""The tape: nodes, their edges, what they save, and what autograd knows of a value.

A node never holds a value that holds the node: a formula that names ``out`` gets an alias without history, so that a
graph is freed by reference counts alone.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple
from weakref import ReferenceType, ref

from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from .. import keys
from ..value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

next_sequence = itertools.count(1).__next__
"""A number greater than those of all nodes that there are, and less than those of all that come."""
_LAST = 1 << 62
"""What makes the sequence numbers of a graph's ends the highest of all."""


class Edge(NamedTuple):
    """Output number ``output`` of ``node``: where a gradient flows to."""

    node: Node
    output: int


class AutogradMeta:
    """Autograd's part of a value: a leaf's gradient, or where the value came from.

    ``rebased`` is the storage's version at the last in-place operation that changed the history, 0 if there was none.
    """

    __slots__ = ("accumulator", "grad", "grad_fn", "output", "rebased", "requires_grad")

    grad: Value | None
    accumulator: ReferenceType[AccumulateGrad] | None

    def __init__(self, requires_grad: bool = False, grad_fn: Node | None = None, output: int = 0) -> None:
        self.requires_grad = requires_grad
        self.grad_fn = grad_fn
        self.output = output
        self.grad = self.accumulator = None
        self.rebased = 0


class Node:
    """A function in the backward graph."""

    __slots__ = ("__weakref__", "edges", "metas", "retained", "sequence")

    def __init__(self, edges: tuple[Edge | None, ...], metas: tuple[Meta, ...]) -> None:
        self.sequence = next_sequence()
        self.edges = edges
        self.metas = metas
        self.retained: dict[int, ReferenceType[Value]] | None = None

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
        super().__init__((), (leaf.meta,))
        self.sequence += _LAST
        self.leaf = leaf

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        return ()


class Saved:
    """What backward needs of a value: its memory, the version that it had, and its history then.

    It holds a leaf itself, but never what is or may become a result: the result's history may lead back here, and the
    cycle would keep memory until a garbage collection. For a result of the very node that saves it, ``creator`` is a
    weak reference.
    """

    __slots__ = ("array", "backend", "creator", "meta", "node", "output", "storage", "value", "version")

    node: Node | None
    creator: ReferenceType[Node] | None

    def __init__(self, value: Value, creator: Node | None = None, output: int = 0) -> None:
        self.meta = value.meta
        self.storage = storage = value.storage
        self.version = storage.version
        known = value.autograd
        if creator is None and known is not None and known.requires_grad and known.grad_fn is None:
            self.value: Value | None = value
            return
        self.value = None
        self.backend = value.backend
        self.array = value._array
        self.creator = None if creator is None else ref(creator)
        self.node, self.output = None, output
        if creator is None and known is not None:
            self.node, self.output = known.grad_fn, known.output

    def unpack(self, consumer: Node) -> Value:
        """The value, if nobody has modified it since."""
        if self.storage.version != self.version:
            raise AutogradError(
                "one of the values needed for gradient computation has been modified by an in-place operation: "
                f"{self.meta}, {self._origin(consumer)}, is at version {self.storage.version}; "
                f"expected version {self.version} instead; clone it before you modify it"
            )
        if self.value is not None:
            return self.value
        value = Value(self.storage, self.meta, self.backend)
        value._array = self.array
        node = self.creator() if self.creator else self.node
        return value if node is None else with_history(value, node, self.output)

    def _origin(self, consumer: Node) -> str:
        node = None if self.value is not None else self.creator() if self.creator else self.node
        return f"output {self.output} of {node.name}" if node is not None else f"an input of {consumer.name}"


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
    node = meta.accumulator() if meta.accumulator else None
    if node is None:
        node = AccumulateGrad(leaf)
        meta.accumulator = ref(node)
    return node
