"""Containers by their classes, how they are taken apart and put together, and what holds the leaves of a tree."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from telegrad_protocol.errors import ArgumentError

from ._pytree_containers import CONTAINERS, Context, NodeDef
from ._pytree_keys import KeyEntry

PyTree: TypeAlias = Any
DumpableContext: TypeAlias = Any
KeyPath: TypeAlias = tuple[KeyEntry, ...]
FlattenFunc: TypeAlias = Callable[[Any], tuple[list[Any], Any]]
FlattenFn: TypeAlias = FlattenFunc
FlattenWithKeysFunc: TypeAlias = Callable[[Any], tuple[list[tuple[KeyEntry, Any]], Any]]
FlattenWithKeysFn: TypeAlias = FlattenWithKeysFunc
UnflattenFunc: TypeAlias = Callable[[Iterable[Any], Any], Any]
UnflattenFn: TypeAlias = UnflattenFunc
ToDumpableContextFn: TypeAlias = Callable[[Any], DumpableContext]
FromDumpableContextFn: TypeAlias = Callable[[DumpableContext], Any]
ToStrFunc: TypeAlias = Callable[["TreeSpec", list[str]], str]
MaybeFromStrFunc: TypeAlias = Callable[[str], tuple[Any, Any, str] | None]


class TextNames(NamedTuple):
    """What a class of containers is called in text, and how what it knows becomes text and is read from it."""

    name: str | None
    to_text: Callable[[Context], Any] | None
    from_text: Callable[[Any], Context] | None


NAMES: Final[dict[type[Any], TextNames]] = {}
"""Of the classes that a program has registered, by class."""
STANDARD_DICT_TYPES: Final[frozenset[type[Any]]] = frozenset((dict, OrderedDict, defaultdict))
BUILTIN_TYPES: Final[frozenset[Any]] = frozenset((tuple, list, namedtuple, deque)) | STANDARD_DICT_TYPES
"""What is a container without being registered."""
NAMED_TUPLES: Final[dict[type[Any], str]] = {}
"""Names of classes of named tuples in text."""


SUPPORTED_NODES: Final[dict[type[Any], NodeDef]] = dict(CONTAINERS)
"""Every kind of container, by its class."""


def register_pytree_node(
    cls: type[Any], flatten_fn: Callable[[Any], tuple[list[Any], Context]],
    unflatten_fn: Callable[[Iterable[Any], Context], Any], *, serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Context], Any] | None = None,
    from_dumpable_context: Callable[[Any], Context] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Context]] | None = None,
) -> None:  # fmt: skip
    """Make a class a container. Raises ValueError if it is one, or if its context is written but not read."""
    if cls in SUPPORTED_NODES:
        raise ArgumentError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ArgumentError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    NAMES[cls] = TextNames(serialized_type_name, to_dumpable_context, from_dumpable_context)


def _deregister_pytree_node(cls: type[Any]) -> None:
    SUPPORTED_NODES.pop(cls, None)
    NAMES.pop(cls, None)


def _register_namedtuple(cls: type[Any], *, serialized_type_name: str) -> None:
    NAMED_TUPLES[cls] = serialized_type_name


_private_register_pytree_node = register_pytree_node
_register_pytree_node = register_pytree_node


def is_namedtuple(obj: Any) -> bool:
    """Whether an object, or a class, is a named tuple."""
    cls = obj if isinstance(obj, type) else type(obj)
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


is_namedtuple_instance = is_namedtuple_class = is_namedtuple


def is_structseq(obj: Any) -> bool:
    """Whether an object is a structure of Python's own, such as ``time.struct_time``: a tuple with ``n_fields``."""
    cls = obj if isinstance(obj, type) else type(obj)
    return issubclass(cls, tuple) and isinstance(getattr(cls, "n_fields", None), int)


is_structseq_instance = is_structseq_class = is_structseq


def tree_is_leaf(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> bool:
    """Whether something is a leaf of a tree: no container, or one that ``is_leaf`` takes for a leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _node_of(tree) is None


_is_leaf = tree_is_leaf


def _get_node_type(tree: Any) -> Any:
    return namedtuple if is_namedtuple(tree) else type(tree)


def _node_of(tree: Any) -> NodeDef | None:
    kind: Any = type(tree)
    if kind not in SUPPORTED_NODES and is_namedtuple(kind):
        kind = namedtuple
    return SUPPORTED_NODES.get(kind)


class TreeSpec:
    """What holds the leaves of a tree: the class of a container, what it knows, and specifications of its children.

    Its ``type`` is None where it stands for one leaf.
    """

    def __init__(self, type: Any, context: Context, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_children = len(children_specs)
        self.num_leaves: int = sum(child.num_leaves for child in children_specs) if type is not None else 1
        self.num_nodes: int = 1 + sum(child.num_nodes for child in children_specs)

    def is_leaf(self) -> bool:
        """Whether this stands for one leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """Return the specifications of the children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """Return the specification of one child."""
        return self.children_specs[index]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Return the tree with these leaves. Raises ValueError unless there are as many as the tree has."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ArgumentError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return self._built_of(iter(leaves))

    def _built_of(self, leaves: Any) -> Any:
        if self.type is None:
            return next(leaves)
        children = [child._built_of(leaves) for child in self.children_specs]
        return SUPPORTED_NODES[self.type].unflatten_fn(children, self.context)

    def flatten_up_to(self, tree: PyTree) -> list[PyTree]:
        """Return what a tree has at the places of this specification's leaves, containers as they are.

        Dictionaries are matched by their keys, whatever their order and which of Python's kinds they are.
        Raises ValueError if the tree has another structure above those places.
        """
        if self.type is None:
            return [tree]
        is_mapping = self.type in STANDARD_DICT_TYPES and type(tree) in STANDARD_DICT_TYPES
        children = self._values_by_key(tree) if is_mapping else self._children_in(tree)
        return [
            item
            for spec, child in zip(self.children_specs, children, strict=True)
            for item in spec.flatten_up_to(child)
        ]

    def _values_by_key(self, tree: dict[Any, Any]) -> list[Any]:
        """Return a dictionary's values in the order of this specification's keys."""
        keys = self.context[1] if self.type is defaultdict else self.context
        if set(keys) != set(tree):
            raise ArgumentError(f"the tree has other keys: expected {list(keys)}, but got {list(tree)}")
        return [tree[key] for key in keys]

    def _children_in(self, tree: PyTree) -> list[Any]:
        """Return the children of a tree that is the same kind of container, with as many of them."""
        node = _node_of(tree)
        kind = type(tree) if node is None else node.type
        if node is None or kind is not self.type:
            raise ArgumentError(f"Node type mismatch; expected {self.type!r}, but got {kind!r}.")
        children, context = node.flatten_fn(tree)
        if len(children) != self.num_children:
            raise ArgumentError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        if kind is not deque and context != self.context:  # how long a deque may become is no matter
            raise ArgumentError(f"the tree has another {kind!r}: expected {self.context!r}, but got {context!r}")
        return list(children)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_nodes))

    def _identity(self) -> tuple[Any, ...]:
        return self.type, self.context, self.children_specs

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        deeper = indent + 2
        children = f",\n{' ' * deeper}".join([child.__repr__(deeper) for child in self.children_specs])
        return f"TreeSpec({self.type.__name__}, {self.context}, [{children}])"


class LeafSpec(TreeSpec):
    """The specification of a tree that is one leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


def treespec_leaf() -> LeafSpec:
    """Return the specification of one leaf."""
    return LeafSpec()


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """Return the specification of a tuple of trees."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """Return the specification of a dict of trees."""
    children = dict(mapping, **kwargs)
    return TreeSpec(dict, list(children), list(children.values()))
