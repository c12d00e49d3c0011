"""Nested containers as a list of their leaves and a specification of what holds them; packages import it from PyTorch.

Dicts, lists, tuples, named tuples and deques are containers, and what `register_pytree_node` adds; everything else,
None included, is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from telegrad_protocol.errors import ArgumentError

from ._pytree_classes import ConstantNode as ConstantNode
from ._pytree_classes import is_constant_class as is_constant_class
from ._pytree_classes import register_constant as register_constant
from ._pytree_classes import register_dataclass as register_dataclass
from ._pytree_containers import Context as Context
from ._pytree_containers import NodeDef as NodeDef
from ._pytree_containers import _defaultdict_flatten as _defaultdict_flatten
from ._pytree_containers import _defaultdict_flatten_with_keys as _defaultdict_flatten_with_keys
from ._pytree_containers import _defaultdict_unflatten as _defaultdict_unflatten
from ._pytree_containers import _deque_flatten as _deque_flatten
from ._pytree_containers import _deque_flatten_with_keys as _deque_flatten_with_keys
from ._pytree_containers import _deque_unflatten as _deque_unflatten
from ._pytree_containers import _dict_flatten as _dict_flatten
from ._pytree_containers import _dict_flatten_with_keys as _dict_flatten_with_keys
from ._pytree_containers import _dict_unflatten as _dict_unflatten
from ._pytree_containers import _list_flatten as _list_flatten
from ._pytree_containers import _list_flatten_with_keys as _list_flatten_with_keys
from ._pytree_containers import _list_unflatten as _list_unflatten
from ._pytree_containers import _namedtuple_flatten as _namedtuple_flatten
from ._pytree_containers import _namedtuple_flatten_with_keys as _namedtuple_flatten_with_keys
from ._pytree_containers import _namedtuple_unflatten as _namedtuple_unflatten
from ._pytree_containers import _odict_flatten as _odict_flatten
from ._pytree_containers import _odict_unflatten as _odict_unflatten
from ._pytree_containers import _ordereddict_flatten as _ordereddict_flatten
from ._pytree_containers import _ordereddict_flatten_with_keys as _ordereddict_flatten_with_keys
from ._pytree_containers import _ordereddict_unflatten as _ordereddict_unflatten
from ._pytree_containers import _tuple_flatten as _tuple_flatten
from ._pytree_containers import _tuple_flatten_with_keys as _tuple_flatten_with_keys
from ._pytree_containers import _tuple_unflatten as _tuple_unflatten
from ._pytree_keys import GetAttrKey as GetAttrKey
from ._pytree_keys import KeyEntry as KeyEntry
from ._pytree_keys import MappingKey as MappingKey
from ._pytree_keys import SequenceKey as SequenceKey
from ._pytree_keys import key_get as key_get
from ._pytree_keys import keystr as keystr
from ._pytree_nodes import BUILTIN_TYPES as BUILTIN_TYPES
from ._pytree_nodes import NAMED_TUPLES as NAMED_TUPLES
from ._pytree_nodes import NAMES as NAMES
from ._pytree_nodes import STANDARD_DICT_TYPES as STANDARD_DICT_TYPES
from ._pytree_nodes import SUPPORTED_NODES as SUPPORTED_NODES
from ._pytree_nodes import DumpableContext as DumpableContext
from ._pytree_nodes import FlattenFn as FlattenFn
from ._pytree_nodes import FlattenFunc as FlattenFunc
from ._pytree_nodes import FlattenWithKeysFn as FlattenWithKeysFn
from ._pytree_nodes import FlattenWithKeysFunc as FlattenWithKeysFunc
from ._pytree_nodes import FromDumpableContextFn as FromDumpableContextFn
from ._pytree_nodes import KeyPath as KeyPath
from ._pytree_nodes import LeafSpec as LeafSpec
from ._pytree_nodes import MaybeFromStrFunc as MaybeFromStrFunc
from ._pytree_nodes import PyTree as PyTree
from ._pytree_nodes import ToDumpableContextFn as ToDumpableContextFn
from ._pytree_nodes import ToStrFunc as ToStrFunc
from ._pytree_nodes import TreeSpec as TreeSpec
from ._pytree_nodes import UnflattenFn as UnflattenFn
from ._pytree_nodes import UnflattenFunc as UnflattenFunc
from ._pytree_nodes import _deregister_pytree_node as _deregister_pytree_node
from ._pytree_nodes import _get_node_type as _get_node_type
from ._pytree_nodes import _is_leaf as _is_leaf
from ._pytree_nodes import _node_of as _node_of
from ._pytree_nodes import _private_register_pytree_node as _private_register_pytree_node
from ._pytree_nodes import _register_namedtuple as _register_namedtuple
from ._pytree_nodes import _register_pytree_node as _register_pytree_node
from ._pytree_nodes import is_namedtuple as is_namedtuple
from ._pytree_nodes import is_namedtuple_class as is_namedtuple_class
from ._pytree_nodes import is_namedtuple_instance as is_namedtuple_instance
from ._pytree_nodes import is_structseq as is_structseq
from ._pytree_nodes import is_structseq_class as is_structseq_class
from ._pytree_nodes import is_structseq_instance as is_structseq_instance
from ._pytree_nodes import register_pytree_node as register_pytree_node
from ._pytree_nodes import tree_is_leaf as tree_is_leaf
from ._pytree_nodes import treespec_dict as treespec_dict
from ._pytree_nodes import treespec_leaf as treespec_leaf
from ._pytree_nodes import treespec_tuple as treespec_tuple
from ._pytree_text import treespec_dumps as treespec_dumps
from ._pytree_text import treespec_loads as treespec_loads
from ._pytree_text import treespec_pprint as treespec_pprint


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


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """Return the leaves of all arguments."""
    return tree_leaves((args, kwargs))


def _children_with_keys(node: NodeDef, tree: PyTree) -> list[tuple[Any, Any]]:
    """Return the children of a container with the keys that lead to them."""
    if node.flatten_with_keys_fn is None:
        raise ArgumentError(
            f"Did not find a flatten_with_keys_fn for type: {node.type}. Please pass a flatten_with_keys_fn argument "
            "to register_pytree_node."
        )
    return node.flatten_with_keys_fn(tree)[0]


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
        for key, child in _children_with_keys(node, subtree):
            visit(child, (*path, key))

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


def _broadcast_to_and_flatten(
    tree: PyTree, treespec: TreeSpec, is_leaf: Callable[[PyTree], bool] | None = None
) -> list[Any] | None:
    """Return a leaf for each leaf of a larger tree: that of ``tree`` above it. None where the structures differ."""
    leaves, above = tree_flatten(tree, is_leaf)
    try:
        below = above.flatten_up_to(tree_unflatten([0] * treespec.num_leaves, treespec))
    except ArgumentError:
        return None
    return [leaf for leaf, part in zip(leaves, below, strict=True) for _ in tree_leaves(part, is_leaf)]
