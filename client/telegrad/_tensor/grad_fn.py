"""What ``Tensor.grad_fn`` shows of the backward graph: its nodes, their hooks, and what they have saved.

The client knows the graph's nodes and edges. The server is asked about a node, by the steps that lead to it from a
tensor, once the program registers a hook there or looks at what it has saved.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from telegrad_protocol.dtypes import DType, of_code
from telegrad_protocol.errors import AutogradError, NotSupportedError, TelegradError
from telegrad_protocol.meta import Device, Meta

from .autograd_graph import (
    ClientNode,
    ClientOutput,
    Extras,
    GradientEdge,
    GradientNode,
    LeafNode,
    NumberedNode,
    OperationName,
    OperationNode,
)
from .hooks import Hooks, RemovableHandle

_SAVED, _RAW = "_saved_", "_raw_saved_"


class _Handles:
    """Makes a tensor of a session, an id and a meta, and packs one that is saved; modules above this one set these."""

    make: Callable[[Any, int, Meta], Any]
    pack: Callable[[NumberedNode, OperationNode, str, int, Any], bool]


HANDLES = _Handles()
_SHOWN: WeakValueDictionary[int, GradFn] = WeakValueDictionary()
"""What is shown of nodes now, by the identity of the node: one object for each, as programs compare them."""


@cache
def _class_named(name: str) -> type[GradFn]:
    return type(name.rpartition("::")[2], (GradFn,), {"__slots__": ()})


def warn_of_no_gradient() -> None:
    """Warn of a program that reads the ``.grad`` of a result, which has none unless it retains it."""
    warnings.warn(
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
        "populated during autograd.backward(). Call .retain_grad() on it before, or access the leaf instead.",
        UserWarning,
        stacklevel=3,
    )


def shown_node(edge: GradientEdge, tensor: Any = None, behind: tuple[GradFn, int] | None = None) -> GradFn:
    """Return what a program sees of a node; a tensor that it computed, or a node in front of it, tells where it is.

    ``behind`` is such a node, with the place of the edge that leads from there.
    """
    node = edge.function if isinstance(edge, ClientOutput) else edge
    shown = _SHOWN.get(id(node))
    if shown is None:
        name = node.name if isinstance(node, OperationNode) else "AccumulateGrad"
        shown = _SHOWN[id(node)] = object.__new__(_class_named(str(name)))
        shown._node, shown._tensor, shown._behind = node, None, None
    if tensor is not None and tensor._node is edge:
        shown._tensor = tensor
    if behind is not None and shown._behind is None:
        shown._behind = behind
    return shown


def saved_names(tensor: Any) -> frozenset[str]:
    """Return what the operation that computed a tensor has saved, by the names of its operands. One round trip.

    It is empty where the server's node cannot be told.
    """
    try:
        saved = shown_node(tensor._gradient_edge(), tensor)._numbered("_saved").saved
    except TelegradError:
        return frozenset()
    return frozenset([name for name, (kind, count) in saved.items() if kind in ("tensor", "tensors") and count])


class InputMetadata(NamedTuple):
    """The form of a gradient that reaches a node."""

    shape: tuple[int, ...]
    dtype: DType
    device: Device
    is_nested_tensor: bool = False


class SavedTensor:
    """What stands for a tensor that a node of the server has saved."""

    __slots__ = ("_name", "_node", "_numbered", "_place")

    def __init__(self, numbered: NumberedNode, node: OperationNode, name: str, place: int) -> None:
        self._numbered, self._node, self._name, self._place = numbered, node, name, place

    def register_hooks(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        """Keep the tensor as what ``pack_hook`` returns of it, which is called now. One round trip.

        Raises AutogradError where it has hooks already, or there is no tensor.
        """
        if not HANDLES.pack(self._numbered, self._node, self._name, self._place, (pack_hook, unpack_hook)):
            raise AutogradError(
                "Calling register_hooks on a saved tensor whose hooks have already been set, or with value None "
                "is not allowed: only one pair of hooks is allowed at a time"
            )


class GradFn:
    """The operation that a tensor was computed by, and those that come before it.

    Every kind of node has a class of its own, by whose name programs draw graphs. What the operation has saved is in
    attributes such as ``_saved_self``, which ``dir`` lists.
    """

    __slots__ = ("__weakref__", "_behind", "_node", "_tensor")

    _behind: tuple[GradFn, int] | None
    _node: OperationNode | LeafNode
    _tensor: Any

    def name(self) -> str:
        """Return a name such as ``AddBackward0``, as PyTorch calls it."""
        return str(self._node.name) if isinstance(self._node, OperationNode) else "torch::autograd::AccumulateGrad"

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """The nodes that gradients of this one flow to, each with the number of the output that they are for."""
        return tuple(
            [
                (None, 0)
                if edge is None
                else (shown_node(edge, None, (self, place)), edge.index if isinstance(edge, ClientOutput) else 0)
                for place, edge in enumerate(_edges(self._node))
            ]
        )

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the program's own notes about this node."""
        return self._extras().metadata

    @property
    def variable(self) -> Any:
        """The leaf that an ``AccumulateGrad`` accumulates into."""
        if isinstance(self._node, LeafNode):
            return self._node.tensor()
        raise AttributeError(f"{self.name()} has no attribute 'variable'")

    @property
    def _input_metadata(self) -> list[InputMetadata]:
        """The forms of the gradients that reach the node. One round trip, the first time."""
        metas: Sequence[Meta | None]
        if isinstance(self._node, LeafNode):
            metas = [self._leaf("_input_metadata")._meta]
        else:
            metas = (
                self._node.metas if isinstance(self._node, ClientNode) else self._numbered("_input_metadata").outputs
            )
        return [InputMetadata(meta.shape, meta.dtype, meta.device) for meta in metas if meta is not None]

    def register_prehook(self, fn: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call ``fn(grad_outputs)`` before a pass computes the node's gradients; a tuple that it returns replaces them.

        One round trip, the first time. Raises NotSupportedError where the server's node cannot be told.
        """
        if isinstance(self._node, LeafNode):

            def hook(gradient: Any) -> Any:
                replaced = fn((gradient,))
                return replaced[0] if isinstance(replaced, tuple) else replaced

            return RemovableHandle.add(self._leaf("register_prehook")._watch("register_prehook").before, hook)
        if isinstance(self._node, ClientNode):
            return self._node.context.register_prehook(fn)  # type: ignore[attr-defined, no-any-return]
        return RemovableHandle.add(self._numbered("register_prehook").prehooks, fn)

    def register_hook(self, fn: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call ``fn(grad_inputs, grad_outputs)`` once the node's gradients are computed; a tuple replaces the former.

        One round trip, the first time. Raises NotSupportedError where the server's node cannot be told.
        """
        if isinstance(self._node, LeafNode):
            return _hook_of_leaf(self._leaf("register_hook"), fn)
        if isinstance(self._node, ClientNode):
            return self._node.context.register_hook(fn)  # type: ignore[attr-defined, no-any-return]
        return RemovableHandle.add(self._numbered("register_hook").posthooks, fn)

    def _extras(self) -> Extras:
        if self._node.extras is None:
            self._node.extras = Extras()
        return self._node.extras

    def _leaf(self, name: str) -> Any:
        leaf = self._node.tensor()  # type: ignore[union-attr]
        if leaf is None:
            raise AutogradError(f"AccumulateGrad.{name}: the leaf does not exist any more")
        return leaf

    def _numbered(self, name: str) -> NumberedNode:
        """Return the server's node, which is asked for the first time."""
        extras = self._extras()
        if extras.numbered is None:
            route = self._route()
            if route is None:
                raise NotSupportedError(
                    f"{self.name()}.{name}: the tensor that this operation computed is not known; take the node from "
                    "its tensor's grad_fn, or use Tensor.register_hook()"
                )
            session, source, edge, steps = route
            made = NumberedNode(session, source - len(steps))
            answer = session.query("find_node", made.before, made.after, source, edge, steps, _operation(self._node))
            describe(made, answer)
            extras.numbered = made
        return extras.numbered

    def _shown_by(self) -> Any:
        """Return the tensor that this is the node of; None where that is not known any more."""
        if isinstance(self._node, LeafNode):
            return self._node.tensor()
        tensor = self._tensor
        if tensor is None or not tensor._is_tracked():
            return None
        edge = tensor._gradient_edge()
        return tensor if self._node in (edge, getattr(edge, "function", None)) else None

    def _route(self) -> tuple[Any, int, int | None, list[tuple[str, int, int]]] | None:
        """Return the session, where a search for this node begins, and the steps from there; None if that is lost."""
        tensor = self._tensor
        if tensor is not None and tensor._is_tracked() and tensor._gradient_edge() is self._node:
            return tensor._session, tensor._id, None, []
        if self._behind is None:
            return None
        shown, place = self._behind
        node = shown._node
        if isinstance(node, ClientNode):
            return node.session, node.number, place, []
        route = shown._route()
        if route is None:
            return None
        session, source, edge, steps = route
        return session, source, edge, [*steps, (_operation(node), len(node.parents), place)]

    def __dir__(self) -> list[str]:
        names = [name for name in object.__dir__(self) if not name.startswith("_behind")]
        if isinstance(self._node, OperationNode) and not isinstance(self._node, ClientNode):
            try:
                saved = self._numbered("_saved").saved
            except TelegradError:  # the server's node cannot be told
                return names
            names += [f"{prefix}{name}" for name in saved for prefix in (_SAVED, _RAW)]
        return names

    def __getattr__(self, name: str) -> Any:
        node = self._node
        if isinstance(node, ClientNode) and not name.startswith("__"):
            return getattr(node.context, name)
        is_raw = name.startswith(_RAW)
        if isinstance(node, OperationNode) and (is_raw or name.startswith(_SAVED)):
            plain = name.removeprefix(_RAW if is_raw else _SAVED)
            numbered = self._numbered(name)
            if plain in numbered.saved:
                kind, value = numbered.saved[plain]
                if kind not in ("tensor", "tensors"):
                    return _plain_value(kind, value)
                if is_raw:
                    stand_ins = [SavedTensor(numbered, node, plain, place) for place in range(value)]
                    return stand_ins[0] if kind == "tensor" else tuple(stand_ins)
                read = [self._read(numbered, plain, place) for place in range(value)]
                return read[0] if kind == "tensor" else tuple(read)
        raise AttributeError(f"{self.name()} has no attribute {name!r}")

    def _read(self, numbered: NumberedNode, name: str, place: int) -> Any:
        """Return the handle of a saved tensor; the leaf itself if it is one. One round trip."""
        for item in numbered.packed:
            if (item.name, item.place) == (name, place):
                return item.unpack()
        session, node = numbered.session, self._node
        id = session.new_id()
        answer = session.query("saved_tensor", numbered.before, name, place, id)
        if answer is None:
            return None
        wire, requires_grad, leaf_id, edge = answer
        leaves = [edge.tensor() for edge in node.parents if isinstance(edge, LeafNode)]
        for leaf in leaves:
            if leaf is not None and leaf._id == leaf_id:
                session.free(id)
                return leaf
        handle = HANDLES.make(session, id, meta_of(wire))
        if requires_grad:
            handle._requires_grad = True
            handle._node = self._edge_of_saved(numbered, name, edge)
        return handle

    def _edge_of_saved(self, numbered: NumberedNode, name: str, place: int | None) -> GradientEdge:
        """Return where the gradient of a saved tensor goes: along the edge at ``place``, unless that is None."""
        node = self._node
        edges = (node,) if name.startswith("result") or not node.parents else node.parents
        if edges is node.parents and place is not None and sum(map(bool, numbered.inputs)) == len(edges):
            return edges[place]
        return edges[0] if len(edges) == 1 else GradientNode(tuple(edges), self.name())

    def __repr__(self) -> str:
        if isinstance(self._node, LeafNode):
            return f"<AccumulateGrad object at {id(self._node):#x}>"
        return f"<{type(self).__name__} object at {id(self._node):#x}>"


def _edges(node: GradientEdge) -> Iterable[GradientEdge | None]:
    return node.edges if isinstance(node, ClientNode) else node.parents


def _operation(node: GradientEdge) -> str:
    """Return the name of the contract that a node is of; empty where the client made it of something else."""
    name = node.name if isinstance(node, OperationNode) else ""
    return name.op if isinstance(name, OperationName) else ""


def _hook_of_leaf(leaf: Any, fn: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> RemovableHandle:
    arrived: list[Any] = []
    before = RemovableHandle.add(leaf._watch("register_hook").noting, lambda gradient: arrived.append(gradient))
    after = leaf.register_post_accumulate_grad_hook(lambda _: fn((), (arrived.pop(),)))
    return _Both(before, after)


class _Both(RemovableHandle):
    """Removes two hooks at once."""

    def __init__(self, *handles: RemovableHandle) -> None:
        super().__init__(Hooks())
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def describe(numbered: NumberedNode, answer: Any) -> None:
    """Note what the server says of one of its nodes."""
    numbered.outputs = [None if wire is None else meta_of(wire) for wire in answer[0]]
    numbered.inputs = [None if wire is None else meta_of(wire) for wire in answer[1]]
    numbered.saved = {name: (kind, value) for name, kind, value in answer[2]}


def meta_of(wire: Any) -> Meta:
    """Return the meta that an answer carries."""
    shape, strides, offset, dtype, device = wire
    return Meta.of(tuple(shape), of_code(dtype), Device(device).on_server, tuple(strides), offset)


def _plain_value(kind: str, value: Any) -> Any:
    if kind == "dtype":
        return of_code(value)
    return tuple(value) if isinstance(value, list) else value
