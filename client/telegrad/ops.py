"""Operators by namespace, as ``torch.ops`` has them: ``telegrad.ops.aten.add.Tensor(a, b)``.

An overload, such as ``Tensor`` or ``default``, is called with arguments of its schema; an operator itself selects one.
"""

from __future__ import annotations

import os
from importlib import import_module as _import_module
from typing import Any, Final

from telegrad._library import aten as _aten
from telegrad._library import registry as _registry
from telegrad._library.compiled import higher_order as _higher_order
from telegrad._library.overloads import OpOverloadPacket

_SYMBOLS = frozenset(f"__{mark}{name}__" for name in ("and", "or", "xor", "lshift", "rshift") for mark in ("", "i"))
"""Operators of PyTorch's library that have the names of Python's methods."""


class OpNamespace:
    """The operators of one namespace, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__name__ = f"torch.ops.{name}"

    def __getattr__(self, name: str) -> OpOverloadPacket:
        is_python = name.startswith("__") and name not in _SYMBOLS
        packet = None if is_python else _registry.packet_of(self.name, name)
        if packet is None:
            listed = "; docs/operations.md lists all operations" if self.name == _aten.NAMESPACE else ""
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'{listed}")
        return packet

    def __dir__(self) -> list[str]:
        known = _aten.names() if self.name == _aten.NAMESPACE else []
        return sorted({*super().__dir__(), *known, *_registry.PACKETS.get(self.name, {})})

    def __iter__(self) -> Any:
        return iter([name for name in dir(self) if not name.startswith("_") and name != "name"])

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self.name}' from 'torch.ops'>"


class HigherOrderNamespace(OpNamespace):
    """The operators that take functions."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            _import_module("telegrad.compiler.function_operators.loops")  # which defines telegrad's
        if name not in _higher_order.OPERATORS:
            raise AttributeError(f"'_OpNamespace' 'higher_order' object has no attribute '{name}'")
        return _higher_order.OPERATORS[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_higher_order.OPERATORS})


_SPACES: Final[dict[str, OpNamespace]] = {_higher_order.NAMESPACE: HigherOrderNamespace(_higher_order.NAMESPACE)}
loaded_libraries: Final[set[str]] = set()
"""Libraries whose operators telegrad has itself, and that were asked for."""


def load_library(path: Any) -> None:
    """Define the operators of a compiled library that telegrad has itself: those for boxes in pictures and for sound.

    Raises OSError for all other libraries, as PyTorch does for one that cannot be loaded; packages then go on without.
    """
    name = os.fspath(path)
    if os.path.isfile(name):
        with open(name, "rb") as file:
            content = file.read()
        namespace = _detection().namespace_in(content)
        is_of_sound = b"_lfilter_core_loop" in content or os.path.basename(name).startswith("_torchaudio")
        if namespace is not None:
            _detection().define_in(namespace)
        elif is_of_sound:
            _import_module("telegrad._library.audio").define()
        if namespace is not None or is_of_sound:
            loaded_libraries.add(name)
            return
    raise OSError(
        f"Could not load this library: {path}: it has kernels for PyTorch's process, which telegrad cannot run; "
        "torch.library.custom_op defines an operator in Python, torch.utils.cpp_extension compiles one for the server"
    )


def _detection() -> Any:
    return _import_module("telegrad._library.detection")


def import_module(module: str) -> None:
    """Import a module that defines operators."""
    __import__(module)


def __getattr__(name: str) -> OpNamespace:
    if name.startswith("__"):
        raise AttributeError(f"telegrad.ops has no attribute {name!r}")
    return _SPACES.setdefault(name, OpNamespace(name))
