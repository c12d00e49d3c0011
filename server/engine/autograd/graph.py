"""The backward graph: its nodes and edges, what nodes save, and what autograd knows of a value.

A node never holds a value that holds the node, so that a graph is freed by reference counts alone: a formula that names
its own result gets an alias of it without history. How gradients are computed is in ``node``, how a graph is run in
``graph_task``; this module knows neither.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ReferenceType, ref

from server.engine import context, keys
from server.engine.value import AutogradMeta, Value, new_value
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from . import changes

if TYPE_CHECKING:
    from collections.abc import Sequence

next_sequence = itertools.count(1).__next__
"""Returns the next sequence number: nodes are numbered in the order in which they are made."""
_LEAF_OFFSET = 1 << 62
"""Added to the sequence numbers of ``AccumulateGrad`` nodes, so that they leave the ready queue before all others."""


Edge: TypeAlias = "tuple[Node, int]"
"""A node and the number of one of its outputs: where a gradient flows. Every operation makes some; hence a tuple."""


new_autograd_meta = partial(object.__new__, AutogradMeta)
"""Makes an ``AutogradMeta`` without attributes, for hot paths that set all of them themselves."""


class Node:
    """A function of the backward graph.

    ``edges`` has one entry per gradient that the node computes, ``metas`` one per output of the forward operation, and
    ``retained`` the values, by output, whose ``.grad`` is to receive that output's gradient.
    """

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

    def retain_grad(self, output: int, value: Value) -> None:
        """Store the gradient of an output in ``value.grad`` when a pass computes it."""
        if self.retained is None:
            self.retained = {}
        self.retained[output] = ref(value)

    def stop_retaining(self, value: Value) -> bool:
        """Store no gradient in ``value.grad`` any more; returns whether one was to be stored."""
        outputs = [output for output, holder in (self.retained or {}).items() if holder() is value]
        for output in outputs:
            del self.retained[output]  # type: ignore[union-attr]
        return bool(outputs)

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        """Compute the gradients for ``edges`` from the gradients of the outputs."""
        raise NotImplementedError

    def release(self) -> None:
        """Free the saved tensors; the node cannot run again."""


class AccumulateGrad(Node):
    """The end of the graph at a leaf. Whoever runs the graph adds the gradient to the leaf's ``.grad``."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Value) -> None:
        self.sequence = next_sequence() + _LEAF_OFFSET
        self.edges = ()
        self.metas = (leaf.meta,)
        self.retained = None
        self.leaf = leaf

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        return ()


UNRECORDED = AutogradMeta(True)
"""The history of unpacked saved tensors while gradients are not recorded: formulas may ask for ``requires_grad``."""


_OF_VIEWS = frozenset(("LinearBackward0",))
"""Nodes of operations that PyTorch makes of views of their operands, which keep the elements of these."""


class SavedTensor:
    """A value that a backward formula needs: its memory, its version when it was saved, and its history.

    A leaf is held itself. What is or may become a result is never held, because its history may lead back to the node
    that saves it, and that cycle would keep memory until Python's garbage collector runs.
    """

    __slots__ = ("array", "meta", "node", "output", "storage", "value", "version")

    node: Node | ReferenceType[Node] | None
    value: Value | None

    def __init__(self, value: Value) -> None:
        self.storage = storage = value.storage
        self.version = storage.version
        self.meta = value.meta
        history = value.autograd
        if history is None:
            self.node = None
        else:
            self.node = history.grad_fn
            self.output = history.output
            if self.node is None and history.requires_grad:
                self.value = value
                return
        self.value = None
        self.array = value._array

    @classmethod
    def of(cls, value: Value, edge: Edge | None) -> SavedTensor:
        """Save a value as if it had the history that leads to this edge, and no other."""
        saved = cls.__new__(cls)
        saved.storage, saved.meta, saved.array = value.storage, value.meta, value._array
        saved.version, saved.value = value.storage.version, None
        saved.node, saved.output = edge if edge is not None else (None, 0)
        return saved

    def unpack(self, consumer: Node) -> Value:
        """Return the value, with its history where gradients are recorded.

        Raises AutogradError where the value was modified in place after it was saved.
        """
        storage = self.storage
        if storage.version != self.version:
            raise self.modified_error(consumer)
        if self.value is not None:
            return self._with_former_elements(self.value) if self._keeps_elements(consumer) else self.value
        value: Value = new_value()  # `Value.__init__`, without a call
        value.storage, value.meta, value.backend = storage, self.meta, storage.backend
        value.base, value.autograd, value._array = None, None, self.array
        value.keys = storage.backend.key
        if self.node is not None:
            if context.current.excluded & keys.AUTOGRAD:
                value.autograd = UNRECORDED
                return value
            node = self._creator()
            if node is not None:
                return with_history(value, node, self.output)
        return value

    @property
    def is_replaced(self) -> bool:
        """Whether it is a leaf that has got other elements since (``succession``)."""
        return self.value is not None and self.value.storage is not self.storage

    def _keeps_elements(self, consumer: Node) -> bool:
        """Whether a node differentiates with what a leaf held, although that has got other elements since."""
        return self.is_replaced and consumer.name in _OF_VIEWS

    def _with_former_elements(self, leaf: Value) -> Value:
        value = Value(self.storage, self.meta, self.storage.backend)
        value.autograd, value.keys = leaf.autograd, leaf.keys  # the same leaf to the graph
        return value

    def _creator(self) -> Node | None:
        return self.node  # type: ignore[return-value]

    def modified_error(self, consumer: Node) -> AutogradError:
        """The error that the saved value was modified in place before ``consumer`` needed it."""
        node = None if self.value is not None else self._creator()
        origin = f"output {self.output} of {node.name}" if node is not None else f"an input of {consumer.name}"
        return AutogradError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"{self.meta}, {origin}, is at version {self.storage.version}; "
            f"expected version {self.version} instead; clone it before you modify it"
        )


class SavedOutput(SavedTensor):
    """A result that is saved by the very node that made it, to which ``node`` is a weak reference."""

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


class SavedTensorList:
    """A list argument that a backward formula needs: saved tensors, and whatever else the list had, as it was."""

    __slots__ = ("items",)

    def __init__(self, items: tuple[Any, ...]) -> None:
        self.items = items

    def unpack(self, consumer: Node) -> tuple[Any, ...]:
        """Return the list with its tensors unpacked."""
        return tuple([item.unpack(consumer) if item.__class__ is SavedTensor else item for item in self.items])


def with_history(value: Value, node: Node, output: int) -> Value:
    """Mark ``value`` as what ``node`` computed as its output number ``output``."""
    changes.note()
    meta = value.autograd
    if meta is None:
        value.autograd = AutogradMeta(True, node, output)
    else:
        meta.requires_grad, meta.grad_fn, meta.output = True, node, output
    value.keys |= keys.AUTOGRAD
    return value


def make_leaf(value: Value, requires_grad: bool) -> None:
    """Set whether a leaf takes part in differentiation."""
    changes.note()
    if value.autograd is None:
        value.autograd = AutogradMeta()
    value.autograd.requires_grad = requires_grad
    value.keys = value.keys | keys.AUTOGRAD if requires_grad or value.base is not None else value.keys & ~keys.AUTOGRAD


def accumulator_of(leaf: Value) -> AccumulateGrad:
    """Return the leaf's one live ``AccumulateGrad`` node; it is made when first asked for."""
    meta = leaf.autograd
    assert meta is not None
    if meta.accumulator is not None:
        node: AccumulateGrad | None = meta.accumulator()
        if node is not None:
            return node
    node = AccumulateGrad(leaf)
    meta.accumulator = ref(node)
    return node
