"""Nested containers as a list of their leaves and a specification of what holds them; packages import it from PyTorch.

Dicts, lists, tuples, named tuples and deques are containers, and what `register_pytree_node` adds; everything else,
None included, is a leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from telegrad_protocol.errors import ArgumentError

PyTree: TypeAlias = Any
Context: TypeAlias = Any


class NodeDef(NamedTuple):
    """How a container is taken apart, into its children and what else there is to know of it, and put together."""

    type: type[Any]
    flatten_fn: Callable[[Any], tuple[list[Any], Context]]
    unflatten_fn: Callable[[Iterable[Any], Context], Any]


def _of_dict(kind: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    return (
        lambda tree: (list(tree.values()), list(tree)),
        lambda children, keys: kind(zip(keys, children, strict=True)),
    )


def _dict_flatten(tree: dict[Any, Any]) -> tuple[list[Any], Context]:
    return list(tree.values()), list(tree)


def _dict_unflatten(values: Iterable[Any], context: Context) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _list_flatten(tree: list[Any]) -> tuple[list[Any], Context]:
    return tree, None


def _list_unflatten(values: Iterable[Any], context: Context) -> list[Any]:
    return list(values)


@dataclass(frozen=True)
class MappingKey:
    """The place of a child in a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class SequenceKey:
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


@dataclass(frozen=True)
class GetAttrKey:
    """The place of a child that is an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


def _dict_flatten_with_keys(tree: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], Context]:
    return [(MappingKey(key), value) for key, value in tree.items()], list(tree)


def _list_flatten_with_keys(tree: list[Any]) -> tuple[list[tuple[Any, Any]], Context]:
    return [(SequenceKey(index), value) for index, value in enumerate(tree)], None


SUPPORTED_NODES: Final[dict[type[Any], NodeDef]] = {
    dict: NodeDef(dict, *_of_dict(dict)),
    OrderedDict: NodeDef(OrderedDict, *_of_dict(OrderedDict)),
    defaultdict: NodeDef(
        defaultdict,
        lambda tree: (list(tree.values()), [tree.default_factory, list(tree)]),
        lambda children, known: defaultdict(known[0], zip(known[1], children, strict=True)),
    ),
    list: NodeDef(list, lambda tree: (list(tree), None), lambda children, _: list(children)),
    tuple: NodeDef(tuple, lambda tree: (list(tree), None), lambda children, _: tuple(children)),
    deque: NodeDef(deque, lambda tree: (list(tree), tree.maxlen), lambda children, length: deque(children, length)),
    namedtuple: NodeDef(  # type: ignore[dict-item]  # the function stands for all of the classes that it makes
        namedtuple,  # type: ignore[arg-type]
        lambda tree: (list(tree), type(tree)),
        lambda children, kind: kind(*children),
    ),
}
"""Every kind of container, by its class."""


def register_pytree_node(
    cls: type[Any], flatten_fn: Callable[[Any], tuple[list[Any], Context]],
    unflatten_fn: Callable[[Iterable[Any], Context], Any], **_: Any,
) -> None:  # fmt: skip
    """Make a class a container. Raises ValueError if it is one."""
    if cls in SUPPORTED_NODES:
        raise ArgumentError(f"{cls} is registered as a pytree node already")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)


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
    """Whether a tree is one leaf."""
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
            raise ArgumentError(f"tree_unflatten: the tree has {self.num_leaves} leaves, and {len(leaves)} were given")
        return self._built_of(iter(leaves))

    def _built_of(self, leaves: Any) -> Any:
        if self.type is None:
            return next(leaves)
        children = [child._built_of(leaves) for child in self.children_specs]
        return SUPPORTED_NODES[self.type].unflatten_fn(children, self.context)

    def flatten_up_to(self, tree: PyTree) -> list[PyTree]:
        """Return what a tree has at the places of this specification's leaves, containers as they are.

        Raises ValueError if the tree has another structure above those places.
        """
        if self.type is None:
            return [tree]
        node = _node_of(tree)
        children, context = node.flatten_fn(tree) if node else ([], None)
        if node is None or node.type is not self.type or len(children) != self.num_children or context != self.context:
            raise ArgumentError(f"the tree does not have the structure {self!r}: {type(tree)}")
        return [
            item
            for spec, child in zip(self.children_specs, children, strict=True)
            for item in spec.flatten_up_to(child)
        ]

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


def tree_flatten(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of a tree, in order, and its specification; ``is_leaf`` is asked of containers first."""
    leaves: list[Any] = []
    return leaves, _flatten_into(leaves, tree, is_leaf)


def _flatten_into(leaves: list[Any], tree: PyTree, is_leaf: Callable[[PyTree], bool] | None) -> TreeSpec:
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        leaves.append(tree)
        return LeafSpec()
    children, context = node.flatten_fn(tree)
    return TreeSpec(node.type, context, [_flatten_into(leaves, child, is_leaf) for child in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """Return the tree with these leaves."""
    return treespec.unflatten(leaves)


def tree_leaves(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> list[Any]:
    """Return the leaves of a tree, in order."""
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def _key_of(node: NodeDef, tree: PyTree, context: Context, index: int) -> Any:
    if node.type is namedtuple:
        return GetAttrKey(tree._fields[index])
    keys = context[1] if isinstance(tree, defaultdict) else context
    return MappingKey(keys[index]) if isinstance(tree, dict) else SequenceKey(index)


def tree_flatten_with_path(
    tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """Return the leaves of a tree with the keys that lead to them, and its specification."""
    paths: list[tuple[tuple[Any, ...], Any]] = []

    def visit(subtree: PyTree, path: tuple[Any, ...]) -> None:
        node = None if tree_is_leaf(subtree, is_leaf) else _node_of(subtree)
        if node is None:
            paths.append((path, subtree))
            return
        children, context = node.flatten_fn(subtree)
        for index, child in enumerate(children):
            visit(child, (*path, _key_of(node, subtree, context, index)))

    visit(tree, ())
    return paths, tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> list[tuple[Any, Any]]:
    """Return the leaves of a tree with the keys that lead to them."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """Return the tree of what the function makes of the keys that lead to a leaf, and of the leaf."""
    leaves, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [*zip(*leaves, strict=True), *(spec.flatten_up_to(rest) for rest in rests)]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def keystr(path: Iterable[Any]) -> str:
    """Return keys as they are written in Python, such as ``['layers'][0]``."""
    return "".join(map(str, path))


def tree_structure(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> TreeSpec:
    """Return the specification of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """Return the tree of what the function makes of its leaves, and of those at the same places of other trees."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(rest) for rest in rests)]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def tree_map_(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """Call the function on the leaves, and return the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


_Kinds: TypeAlias = type[Any] | tuple[type[Any], ...] | Callable[[Any], bool]


def _is_meant(kinds: _Kinds, leaf: Any) -> bool:
    return isinstance(leaf, kinds) if isinstance(kinds, (type, tuple)) else bool(kinds(leaf))


def map_only(kinds: _Kinds, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Return a decorator after which a function leaves what is of other classes as it is."""
    return lambda func: lambda leaf: func(leaf) if _is_meant(kinds, leaf) else leaf


def tree_map_only(
    kinds: _Kinds, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """Return the tree with what the function makes of leaves of some classes; others stay."""
    return tree_map(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    kinds: _Kinds, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """Call the function on leaves of some classes, and return the tree itself."""
    tree_map_only(kinds, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> bool:
    """Whether all leaves are as asked."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> bool:
    """Whether a leaf is as asked."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(
    kinds: _Kinds, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> bool:
    """Whether all leaves of some classes are as asked."""
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if _is_meant(kinds, leaf))


def tree_any_only(
    kinds: _Kinds, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> bool:
    """Whether a leaf of some classes is as asked."""
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if _is_meant(kinds, leaf))
