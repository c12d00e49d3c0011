"""All operators that a program has defined, by namespace and name. Those of PyTorch are in ``aten``."""

from __future__ import annotations

from typing import Any, Final

from telegrad_protocol.errors import ArgumentError, OperatorError

from . import aten
from .operator_entry import Kernel, Operator
from .overloads import OpOverload, OpOverloadPacket
from .schemas.text import parse_schema

PACKETS: Final[dict[str, dict[str, OpOverloadPacket]]] = {}
"""The operators that are defined, by namespace and name."""
_WAITING: Final[dict[str, list[tuple[Any, Kernel]]]] = {}
"""Kernels that were registered for operators which are not defined yet, by full name."""
_FAKES_WAITING: Final[dict[str, list[Any]]] = {}


def split(qualname: str) -> tuple[str, str]:
    """Return namespace and name, which two colons separate. Raises ArgumentError where there are none."""
    parts = qualname.split("::")
    if len(parts) != 2:
        raise ArgumentError(
            f'Expected `qualname` to be of the form "namespace::name", but got {qualname}. The qualname passed to the '
            "torch.library APIs must consist of a namespace and a name, e.g. aten::sin"
        )
    return parts[0], parts[1]


def packet_of(namespace: str, name: str) -> OpOverloadPacket | None:
    """Return the operator of a name; None if there is none."""
    known = PACKETS.get(namespace, {}).get(name)
    return aten.packet(name) if known is None and namespace == aten.NAMESPACE else known


def overload_of(qualname: str) -> OpOverload | None:
    """Return the overload of a full name such as ``mylib::scale.Scalar``; None if there is none."""
    namespace, name = split(qualname)
    plain, _, overload = name.partition(".")
    packet = packet_of(namespace, plain)
    return None if packet is None else getattr(packet, overload or "default", None)


def define(namespace: str, schema_text: str, tags: tuple[Any, ...], source: str) -> OpOverload:
    """Define an overload. Raises OperatorError where there is one of this name already."""
    schema = parse_schema(f"{namespace}::{schema_text}" if "::" not in schema_text.partition("(")[0] else schema_text)
    if schema.name.partition("::")[0] != namespace:
        raise OperatorError(f"Explicitly provided namespace in {schema.name} does not match the library's, {namespace}")
    name = schema.name.partition("::")[2]
    space = PACKETS.setdefault(namespace, {})
    packet = space.get(name)
    known = packet and packet._by_name.get(schema.overload_name or "default")
    if known:
        raise OperatorError(
            f"Tried to register an operator ({schema}) with the same name and overload name multiple times. Each "
            "overload's schema should only be registered with a single call to def(). Duplicate registration: "
            f"{source}. Original registration: {known._operator.source}"
        )
    if packet is None:
        packet = space[name] = OpOverloadPacket(namespace, name)
    overload = packet.add(Operator(schema, tags, source))
    for key, kernel in _WAITING.get(overload._name, ()):
        overload._operator.register(key, kernel)
    overload._operator.fakes += _FAKES_WAITING.get(overload._name, ())
    return overload


def forget(overload: OpOverload) -> None:
    """Remove an overload that was defined."""
    packet = overload._overloadpacket
    if packet._by_name.get(overload._overloadname) is overload and not packet.remove(overload._overloadname):
        PACKETS.get(overload.namespace, {}).pop(overload._opname, None)


def register(qualname: str, key: Any, kernel: Kernel) -> None:
    """Register a kernel for an operator, which may be defined later."""
    overload = overload_of(qualname)
    if overload is None:
        _WAITING.setdefault(qualname, []).append((key, kernel))
    else:
        overload._operator.register(key, kernel)


def unregister(qualname: str, key: Any, kernel: Kernel) -> None:
    """Take back a registration."""
    waiting = _WAITING.get(qualname, [])
    waiting[:] = [pair for pair in waiting if pair[1] is not kernel]
    overload = overload_of(qualname)
    if overload is not None:
        overload._operator.unregister(key, kernel)


def register_fake(qualname: str, function: Any) -> None:
    """Have a function tell the metas of an operator's results; the operator may be defined later."""
    overload = overload_of(qualname)
    fakes = _FAKES_WAITING.setdefault(qualname, []) if overload is None else overload._operator.fakes
    fakes.append(function)
    if overload is not None:
        overload._operator.forget()


def unregister_fake(qualname: str, function: Any) -> None:
    """Take back what `register_fake` has registered."""
    overload = overload_of(qualname)
    for fakes in (_FAKES_WAITING.get(qualname, []), [] if overload is None else overload._operator.fakes):
        fakes[:] = [other for other in fakes if other is not function]
    if overload is not None:
        overload._operator.forget()


def has_fake(qualname: str) -> bool:
    """Whether a fake kernel is registered for an operator."""
    overload = overload_of(qualname)
    return bool(overload is not None and overload._operator.fakes)


def forget_selected() -> None:
    """Drop what calls of all operators have selected, since a fallback was registered or taken back."""
    for packets in (*PACKETS.values(), aten.made()):
        for packet in packets.values():
            for overload in packet._by_name.values():
                overload._operator.forget()
