"""Specifications of trees as text: as JSON in PyTorch's format, and to be read."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from importlib import import_module
from pprint import pformat
from typing import Any, Final

from telegrad._tensor.size import Size
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from ._pytree_nodes import NAMED_TUPLES, NAMES, LeafSpec, TreeSpec

_PROTOCOL: Final = 1
_OWN_NAMES: Final = {
    dict: "builtins.dict", list: "builtins.list", tuple: "builtins.tuple", OrderedDict: "collections.OrderedDict",
    defaultdict: "collections.defaultdict", deque: "collections.deque", namedtuple: "collections.namedtuple",
    Size: "torch.Size",
}  # fmt: skip


class _Leaf:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """Return a specification as its tree, with a star for each leaf."""
    return pformat(treespec.unflatten([_Leaf() for _ in range(treespec.num_leaves)]))


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """Return a specification as JSON. Raises NotSupportedError for a class that has no name in text."""
    _check_protocol(_PROTOCOL if protocol is None else protocol)
    return json.dumps([_PROTOCOL, _described(treespec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """Return the specification that ``treespec_dumps`` has written. Classes have to be registered here, too."""
    protocol, described = json.loads(serialized)
    _check_protocol(protocol)
    return _built(described)


def _check_protocol(protocol: Any) -> None:
    if protocol != _PROTOCOL:
        raise ArgumentError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")


def _described(spec: TreeSpec) -> dict[str, Any]:
    if spec.type is None:
        return {"type": None, "context": None, "children_spec": []}
    name = _OWN_NAMES.get(spec.type) or (NAMES[spec.type].name if spec.type in NAMES else None)
    if name is None:
        raise NotSupportedError(
            f"No registered serialization name for {spec.type} found. Please update your _register_pytree_node call "
            "with a `serialized_type_name` kwarg."
        )
    children = [_described(child) for child in spec.children_specs]
    return {"type": name, "context": _context_text(spec), "children_spec": children}


def _context_text(spec: TreeSpec) -> Any:
    if spec.type is defaultdict:
        factory, keys = spec.context
        return {
            "default_factory_module": factory.__module__, "default_factory_name": factory.__qualname__,
            "dict_context": keys,
        }  # fmt: skip
    if spec.type is namedtuple:
        if spec.context not in NAMED_TUPLES:
            raise NotSupportedError(
                f"Can't serialize TreeSpec of namedtuple class {spec.context} because we didn't register a "
                "serializated_type_name. Please register using `_register_namedtuple`."
            )
        return NAMED_TUPLES[spec.context]
    written = NAMES[spec.type].to_text if spec.type in NAMES else None
    return written(spec.context) if written else json.dumps(spec.context)


def _built(described: dict[str, Any]) -> TreeSpec:
    name, text = described["type"], described["context"]
    if name is None:
        return LeafSpec()
    named: dict[str | None, Any] = {known: kind for kind, known in _OWN_NAMES.items()}
    named |= {names.name: kind for kind, names in NAMES.items()}
    if name not in named:
        raise NotSupportedError(f"Deserialization of {name} in tree specs is not supported here: it is not registered")
    children = [_built(child) for child in described["children_spec"]]
    return TreeSpec(named[name], _context_of(named[name], text), children)


def _context_of(kind: Any, text: Any) -> Any:
    if kind is defaultdict:
        factory = getattr(import_module(text["default_factory_module"]), text["default_factory_name"])
        return [factory, text["dict_context"]]
    if kind is namedtuple:
        return next(one for one, name in NAMED_TUPLES.items() if name == text)
    read = NAMES[kind].from_text if kind in NAMES else None
    return read(text) if read else json.loads(text)
