"""The client's autograd graph: enough of it to know which leaves a backward pass will give a ``.grad``.

It has nodes and their parents only. Saved values and derivative formulas are in the server's graph. Knows no tensors
beyond weak references to those that receive gradients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from weakref import ReferenceType

from telegrad_protocol.errors import ArgumentTypeError, AutogradError
from telegrad_protocol.meta import Meta

from .hooks import Hook, Hooks


class Watched:
    """A place in the graph whose gradient hooks are called with; ``number`` is what the server calls it.

    ``age`` is smaller for what was computed earlier. ``before`` are the hooks of a leaf's node, which are called behind
    those of the leaf; ``noting`` those that keep what both have made of the gradient, and ``after`` those that are
    called once its ``.grad`` has been accumulated.
    """

    __slots__ = ("after", "age", "before", "hooks", "meta", "noting", "number", "session")

    def __init__(self, session: Any, number: int, meta: Meta, age: int) -> None:
        self.session = session
        self.number = number
        self.meta = meta
        self.age = age
        self.hooks: Hooks = OrderedDict()
        self.before: Hooks = OrderedDict()
        self.noting: Hooks = OrderedDict()
        self.after: Hooks = OrderedDict()

    @property
    def on_gradient(self) -> list[Hook]:
        """The hooks that are called with the gradient, in order."""
        return [*self.hooks.values(), *self.before.values(), *self.noting.values()]

    def call_after(self, leaf: Any) -> None:
        """Call the hooks of a leaf whose gradient was accumulated; they return None, or the leaf itself."""
        for hook in list(self.after.values()):
            result = hook(leaf)
            if result is not None and result is not leaf:
                kind = AutogradError if hasattr(result, "_meta") else ArgumentTypeError
                raise kind(
                    "register_post_accumulate_grad_hook: Tensor post accumulate grad hooks should return None, and "
                    f"this one returned a {type(result).__name__}; change .grad in place"
                )

    def __del__(self) -> None:
        self.session.free(self.number)


class PackedSaved:
    """A saved tensor as ``saved_tensors_hooks`` keep it; ``name`` and ``place`` are what the server calls it."""

    __slots__ = ("_packed", "_unpack", "name", "place")

    def __init__(self, name: str, place: int, packed: Any, unpack: Callable[[Any], Any]) -> None:
        self.name, self.place = name, place
        self._packed, self._unpack = packed, unpack

    def unpack(self) -> Any:
        """Return the tensor again, as the program makes it of what it keeps."""
        return self._unpack(self._packed)


class NumberedNode:
    """The server's node of an operation, with the hooks that are called before and after it computes gradients.

    The server calls the node ``before``, and the place behind it ``after``. ``outputs`` are metas of the operation's
    results, ``inputs`` of the gradients that the node computes; None where there is no gradient. ``saved`` has what the
    node has saved by its name: a kind and a value; ``packed`` what the program keeps of it, and ``age`` is as in
    ``Watched``.
    """

    __slots__ = ("after", "age", "before", "inputs", "outputs", "packed", "posthooks", "prehooks", "saved", "session")

    def __init__(self, session: Any, age: float) -> None:
        self.session = session
        self.before = session.new_id()
        self.after = session.new_id()
        self.age = age
        self.outputs: list[Meta | None] = []
        self.inputs: list[Meta | None] = []
        self.saved: dict[str, tuple[str, Any]] = {}
        self.packed: list[PackedSaved] = []
        self.prehooks: Hooks = OrderedDict()
        self.posthooks: Hooks = OrderedDict()

    @property
    def has_hooks(self) -> bool:
        """Whether a pass stops here."""
        return bool(self.packed or self.prehooks or self.posthooks)

    def __del__(self) -> None:
        self.session.free(self.before)
        self.session.free(self.after)


class Extras:
    """What few nodes have: ``retained`` refers to the results whose ``retain_grad`` was called, by their numbers.

    ``watched`` are places with hooks, by the numbers of the tensors that they were registered on. ``numbered`` is there
    once the program has asked the server about the node. ``is_moved`` says that a leaf has got other elements since
    something was computed of it, of another layout or type than gradients of that have.
    """

    __slots__ = ("is_moved", "metadata", "numbered", "retained", "watched")

    def __init__(self) -> None:
        self.is_moved = False
        self.numbered: NumberedNode | None = None
        self.metadata: dict[Any, Any] = {}
        self.retained: dict[int, ReferenceType[Any]] = {}
        self.watched: dict[int, Watched] = {}

    def retaining(self) -> list[Any]:
        """Return the results that keep their gradients, as far as they are there still."""
        return [tensor for holder in self.retained.values() if (tensor := holder()) is not None]

    def active(self) -> list[Watched]:
        """Return the places that have hooks."""
        return [watched for watched in self.watched.values() if watched.on_gradient or watched.after]

    def hooked(self) -> NumberedNode | None:
        """Return the node where it has hooks of its own."""
        return self.numbered if self.numbered is not None and self.numbered.has_hooks else None


class OperationName(str):
    """The name of a node that PyTorch prints, and that of the operation whose node it is, ``op``."""

    __slots__ = ("op",)

    op: str


class OperationNode:
    """The operation that a tensor was computed by; ``parents`` are the edges of its operands that require a gradient.

    ``extras`` is None for nearly all nodes.
    """

    __slots__ = ("__weakref__", "extras", "name", "parents")

    def __init__(self, parents: tuple[GradientEdge, ...], name: str = "") -> None:
        self.parents = parents
        self.name = name
        self.extras: Extras | None = None


_allocate = object.__new__


def new_node(parents: Sequence[GradientEdge], name: str) -> OperationNode:
    """Return what ``OperationNode(tuple(parents), name)`` gives, in half the time."""
    node = _allocate(OperationNode)
    node.parents = tuple(parents)
    node.name = name
    node.extras = None
    return node


class DeferredNode(OperationNode):
    """The node of a result of many operations, whose nodes are made once something asks for its ``parents``.

    ``edges`` are where gradients flow on to from all of them, in the order in which a walk notes them, and ``expand``
    makes the parents of these. A pass that asks for nothing else goes from here to the edges.
    """

    __slots__ = ("_expand", "_parents", "edges")

    def __init__(
        self, name: str, edges: list[GradientEdge], expand: Callable[[list[GradientEdge]], tuple[GradientEdge, ...]]
    ) -> None:  # fmt: skip
        self.name, self.extras = name, None
        self.edges = edges
        self._expand: Callable[[list[GradientEdge]], tuple[GradientEdge, ...]] | None = expand
        self._parents: tuple[GradientEdge, ...] = ()

    @property
    def is_deferred(self) -> bool:
        """Whether nothing has asked for the parents yet."""
        return self._expand is not None

    @property
    def parents(self) -> tuple[GradientEdge, ...]:
        expand, self._expand = self._expand, None
        if expand is not None:
            self._parents, self.edges = expand(self.edges), []
        return self._parents

    @parents.setter
    def parents(self, parents: tuple[GradientEdge, ...]) -> None:
        self._expand, self._parents, self.edges = None, parents, []


class GradientNode(OperationNode):
    """What computed a gradient that can be differentiated again; ``parents`` are more than what it depends on.

    Only the server knows which of them gradients flow to.
    """

    __slots__ = ()

    def __init__(self, parents: tuple[GradientEdge, ...], name: str = "") -> None:
        super().__init__(parents, name)
        self.extras = Extras()


class DifferentiableCall(Protocol):
    """A call of a function whose derivative the client's program computes."""

    def differentiate(self, gradients: list[Any]) -> Sequence[Any]:
        """Return gradients of the tensors that the function was applied to, given those of its results."""

    def release(self) -> None:
        """Drop what was saved."""


class ClientNode(OperationNode):
    """A function whose derivative the client's program computes: ``context`` maps gradients to gradients.

    ``edges`` has one entry for each tensor that it was applied to, None where that requires no gradient; ``metas`` has
    one for each result, None where that is no tensor or has no gradient. ``number`` is what the server calls the node.
    """

    __slots__ = ("context", "edges", "held", "metas", "number", "session")

    def __init__(
        self, session: Any, number: int, name: str, edges: list[GradientEdge | None], metas: list[Meta | None],
        context: DifferentiableCall,
    ) -> None:  # fmt: skip
        super().__init__(tuple([edge for edge in edges if edge is not None]), name)
        self.extras = Extras()
        self.session = session
        self.number = number
        self.edges = edges
        self.metas = metas
        self.context = context
        self.held: Any = None
        """``held_gradients.HeldParts`` where some operands or results have gradients that the program keeps."""

    def release(self) -> None:
        """Drop what the function has saved, since the graph is not retained."""
        self.context.release()

    def __del__(self) -> None:
        self.session.free(self.number)


class ClientOutput(OperationNode):
    """One result of a function whose derivative the client computes."""

    __slots__ = ("function", "index")

    def __init__(self, function: ClientNode, index: int) -> None:
        super().__init__((function,), function.name)
        self.function = function
        self.index = index


class SourceNode(OperationNode):
    """Where the graph of a dual number begins; ``is_active`` until its level is left."""

    __slots__ = ("is_active",)

    def __init__(self, parents: tuple[GradientEdge, ...], name: str = "") -> None:
        super().__init__(parents, name)
        self.is_active = True


class ReceiverNode(OperationNode):
    """A dual number that gradients are asked for, as of a leaf; refers to it weakly."""

    __slots__ = ("tensor",)

    def __init__(self, parent: GradientEdge, name: str, tensor: ReferenceType[Any]) -> None:
        super().__init__((parent,), name)
        self.tensor = tensor


class LeafNode:
    """A leaf tensor, which receives a ``.grad``; refers to it weakly."""

    __slots__ = ("extras", "tensor")

    parents = ()

    def __init__(self, tensor: ReferenceType[Any]) -> None:
        self.tensor = tensor
        self.extras: Extras | None = None


class StandInNode(LeafNode):
    """A leaf in place of another one, ``target``, which gets no gradient from what was computed of this leaf.

    The leaf itself is ``held``. ``settle(gradient, adds)`` turns its gradient into that of the target, and adds it
    there if asked to.
    """

    __slots__ = ("held", "settle", "target")

    def __init__(self, held: Any, target: Any, settle: Any) -> None:
        super().__init__(lambda: held)  # type: ignore[arg-type]
        self.held = held
        self.target = target
        self.settle = settle
        self.extras = Extras()


GradientEdge = OperationNode | LeafNode
"""Where the gradient of a tensor goes."""


class Aliases:
    """What all views of one memory share: how often it was written by a differentiated operation, and the last such.

    A view that has seen an older ``version`` takes over ``node`` before it is used (``Tensor._refresh``), and is handed
    to ``adopt`` where dual numbers were written.
    """

    __slots__ = ("adopt", "node", "version")

    def __init__(self) -> None:
        self.adopt: Callable[[Any], bool] | None = None
        self.node: GradientEdge | None = None
        self.version = 0

    def hand_to(self, view: Any) -> None:
        """Make ``node`` the history of a view: one like it, since gradients reach each view by itself."""
        node: Any = self.node
        hand_over(view, new_node(node.parents, node.name) if type(node) is OperationNode else node)


def hand_over(tensor: Any, node: GradientEdge) -> None:
    """Make ``node`` the history of a tensor; a gradient that it retains is that of its elements from here on."""
    old, tensor._requires_grad, tensor._node = tensor._node, True, node
    extras = None if old is None else old.extras
    retained = None if extras is None else extras.retained.pop(tensor._id, None)
    if retained is not None:
        node.extras = node.extras or Extras()
        node.extras.retained[tensor._id] = retained


def share_history(tensor: Any, node: GradientEdge, is_modified: bool) -> None:
    """Make ``node`` the history of a tensor, and of the views of its memory where it was modified in place."""
    hand_over(tensor, node)
    aliases = tensor._aliases
    if aliases is None:
        return
    if is_modified:
        aliases.version += 1
        aliases.node = OperationNode((node,), "AsStridedBackward0")
    tensor._seen = aliases.version


def has_gradient(tensor: Any) -> bool:
    """Tell whether gradients flow into a tensor that says it requires grad, and not into its base alone."""
    return bool(tensor.requires_grad and tensor._requires_grad)


def reachable(roots: Iterable[GradientEdge]) -> set[GradientEdge]:
    """Return all nodes that gradients of ``roots`` flow to, the roots included."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        for parent in stack.pop().parents:
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return seen


def has_client_parts(nodes: Iterable[GradientEdge]) -> bool:
    """Return whether a pass through these nodes calls hooks or functions of the client's program."""
    for node in nodes:
        extras = node.extras
        if extras is not None and (extras.watched or node.__class__ is ClientNode or extras.hooked()):
            return True
    return False


def has_gradients(nodes: Iterable[GradientEdge]) -> bool:
    """Return whether there are gradients among what these nodes computed: then some are not really reached."""
    return any([node.extras is not None and node.__class__ is GradientNode for node in nodes])


def stand_ins_among(nodes: Iterable[GradientEdge]) -> list[StandInNode]:
    """Return those of the nodes that stand in place of another leaf."""
    return [node for node in nodes if node.extras is not None and isinstance(node, StandInNode)]
