"""Classes of a program that are containers by their fields, or whose objects are parts of a tree's specification."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from ._pytree_containers import Context
from ._pytree_keys import GetAttrKey
from ._pytree_nodes import SUPPORTED_NODES, register_pytree_node


class ConstantNode(NamedTuple):
    """What the specification of a tree knows of a constant: the object itself."""

    value: Any


def register_dataclass(
    cls: type[Any], *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:  # fmt: skip
    """Make a dataclass, or a class that is made of the fields that are named, a container of its fields.

    Fields with ``None`` are no children. Raises ValueError where the names do not fit the fields.
    """
    names = _fields_of(cls, field_names, set(drop_field_names or ()))

    def parts(obj: Any) -> tuple[list[tuple[str, Any]], Context]:
        held = [(name, getattr(obj, name)) for name in names]
        present = [(name, value) for name, value in held if value is not None]
        return present, [[name for name, _ in present], [name for name, value in held if value is None]]

    def flatten(obj: Any) -> tuple[list[Any], Context]:
        present, context = parts(obj)
        return [value for _, value in present], context

    def flatten_with_keys(obj: Any) -> tuple[list[tuple[Any, Any]], Context]:
        present, context = parts(obj)
        return [(GetAttrKey(name), value) for name, value in present], context

    def unflatten(values: Any, context: Context) -> Any:
        present, absent = context
        return cls(**dict(zip(present, values, strict=True)), **dict.fromkeys(absent))

    register_pytree_node(
        cls, flatten, unflatten, serialized_type_name=serialized_type_name, flatten_with_keys_fn=flatten_with_keys
    )


def _fields_of(cls: type[Any], given: list[str] | None, dropped: set[str]) -> list[str]:
    """Return the names of the fields that are children. Raises ValueError where names were forgotten, or are none."""
    if not dataclasses.is_dataclass(cls):
        if given is None:
            raise ArgumentError(
                f"field_names must be specified with a list of all fields used to initialize {cls}, as it is not a "
                "dataclass."
            )
        return given
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    names = given if given is not None else [name for name in known if name not in dropped]
    missing, unknown = set(known) - set(names) - dropped, (set(names) | dropped) - set(known)
    if missing:
        raise ArgumentError(
            "field_names does not include all dataclass fields.\n"
            f"Missing fields in `field_names`: {missing}. If you want to include these fields in the pytree, please "
            "add them to `field_names`, otherwise please add them to `drop_field_names`."
        )
    if unknown:
        raise ArgumentError(f"field_names and drop_field_names have {unknown}, which {cls} does not have as fields")
    return names


def register_constant(cls: type[Any]) -> None:
    """Have objects of a class be parts of a specification instead of leaves; they are compared and hashed.

    Raises TypeError for a class that compares its objects by identity alone.
    """
    equals: Any = cls.__eq__
    if equals is object.__eq__:
        raise ArgumentTypeError("register_constant(cls) expects `cls` to have a non-default `__eq__` implementation.")
    if cls.__hash__ is None:
        raise ArgumentTypeError("register_constant(cls) expects `cls` to have a `__hash__` implementation.")
    register_pytree_node(
        cls,
        lambda obj: ([], ConstantNode(obj)),
        _constant,
        flatten_with_keys_fn=lambda obj: ([], ConstantNode(obj)),
    )


def _constant(values: Any, context: Context) -> Any:
    return context.value


def is_constant_class(cls: type[Any]) -> bool:
    """Whether objects of a class are parts of a specification."""
    node = SUPPORTED_NODES.get(cls)
    unflatten: Callable[..., Any] | None = node.unflatten_fn if node else None
    return unflatten is _constant
