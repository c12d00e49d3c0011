"""Python's own containers: how each kind is taken apart and put together, by functions that packages use by name."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from telegrad._tensor.size import Size

from ._pytree_keys import GetAttrKey, MappingKey, SequenceKey

Context: TypeAlias = Any
Flattened: TypeAlias = tuple[list[Any], Context]
Keyed: TypeAlias = tuple[list[tuple[Any, Any]], Context]


class NodeDef(NamedTuple):
    """How a container is taken apart, into its children and what else there is to know of it, and put together."""

    type: type[Any]
    flatten_fn: Callable[[Any], Flattened]
    unflatten_fn: Callable[[Iterable[Any], Context], Any]
    flatten_with_keys_fn: Callable[[Any], Keyed] | None = None


def _with_keys(flatten: Callable[[Any], Flattened], keys_of: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Keyed]:
    """Return a function that also returns the keys that lead to the children."""

    def flatten_with_keys(tree: Any) -> Keyed:
        children, context = flatten(tree)
        return list(zip(keys_of(tree), children, strict=True)), context

    return flatten_with_keys


def _places(tree: Any) -> list[SequenceKey]:
    return [SequenceKey(index) for index in range(len(tree))]


def _names(tree: Any) -> list[MappingKey]:
    return [MappingKey(key) for key in tree]


def _fields(tree: Any) -> list[GetAttrKey]:
    return [GetAttrKey(name) for name in tree._fields]


def _list_flatten(tree: list[Any]) -> Flattened:
    return tree, None


def _list_unflatten(values: Iterable[Any], context: Context) -> list[Any]:
    return list(values)


def _tuple_flatten(tree: tuple[Any, ...]) -> Flattened:
    return list(tree), None


def _tuple_unflatten(values: Iterable[Any], context: Context) -> tuple[Any, ...]:
    return tuple(values)


def _dict_flatten(tree: dict[Any, Any]) -> Flattened:
    return list(tree.values()), list(tree)


def _dict_unflatten(values: Iterable[Any], context: Context) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


_ordereddict_flatten = _dict_flatten


def _ordereddict_unflatten(values: Iterable[Any], context: Context) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(context, values, strict=True))


def _defaultdict_flatten(tree: defaultdict[Any, Any]) -> Flattened:
    return list(tree.values()), [tree.default_factory, list(tree)]


def _defaultdict_unflatten(values: Iterable[Any], context: Context) -> defaultdict[Any, Any]:
    factory, keys = context
    return defaultdict(factory, zip(keys, values, strict=True))


def _deque_flatten(tree: deque[Any]) -> Flattened:
    return list(tree), tree.maxlen


def _deque_unflatten(values: Iterable[Any], context: Context) -> deque[Any]:
    return deque(values, context)


def _namedtuple_flatten(tree: Any) -> Flattened:
    return list(tree), type(tree)


def _namedtuple_unflatten(values: Iterable[Any], context: Context) -> Any:
    return context(*values)


_list_flatten_with_keys = _with_keys(_list_flatten, _places)
_tuple_flatten_with_keys = _with_keys(_tuple_flatten, _places)
_deque_flatten_with_keys = _with_keys(_deque_flatten, _places)
_dict_flatten_with_keys = _with_keys(_dict_flatten, _names)
_ordereddict_flatten_with_keys = _with_keys(_ordereddict_flatten, _names)
_defaultdict_flatten_with_keys = _with_keys(_defaultdict_flatten, _names)
_namedtuple_flatten_with_keys = _with_keys(_namedtuple_flatten, _fields)
_odict_flatten, _odict_unflatten = _ordereddict_flatten, _ordereddict_unflatten

_NAMED_TUPLE: Final[Any] = namedtuple
"""The function stands for all of the classes that it makes."""
CONTAINERS: Final[dict[type[Any], NodeDef]] = {
    dict: NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    OrderedDict: NodeDef(OrderedDict, _ordereddict_flatten, _ordereddict_unflatten, _ordereddict_flatten_with_keys),
    defaultdict: NodeDef(defaultdict, _defaultdict_flatten, _defaultdict_unflatten, _defaultdict_flatten_with_keys),
    list: NodeDef(list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
    tuple: NodeDef(tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),
    Size: NodeDef(Size, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),  # put together as a tuple
    deque: NodeDef(deque, _deque_flatten, _deque_unflatten, _deque_flatten_with_keys),
    _NAMED_TUPLE: NodeDef(_NAMED_TUPLE, _namedtuple_flatten, _namedtuple_unflatten, _namedtuple_flatten_with_keys),
}
"""The kinds of containers that need not be registered, by class."""
