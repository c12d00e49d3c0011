"""Modules in C that make usual paths shorter, for interpreters whose machine has a compiler (decision 0083).

A text is compiled once per machine and Python, into the user's cache, and later programs find it there. Nothing depends
on it: without it, the same takes longer in Python. Knows nothing of what the modules do.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from telegrad_protocol.errors import ConfigurationError

from . import place

VARIABLE: Final = "TELEGRAD_NATIVE"
_CHOICES: Final = ("beside", "wait", "never")


def load(source: Path, package: str, *, waits: bool = False) -> Any:
    """Return the module of a text, as a part of a package; None where Python is to do without it.

    It is compiled first where ``TELEGRAD_NATIVE`` says ``wait``, or by ``waits`` unless it says ``never``.
    """
    choice = _choice()
    library = None if choice == "never" else place.library(source)
    if library is None:
        return None
    if (waits or choice == "wait") and place.is_missing(library):
        import_module(f"{__name__}.compiling").compile_library(source, library)
    return _loaded(library, f"{package}._{source.stem}") if place.is_trusted(library) else None


def compile_beside(source: Path) -> None:
    """Have a text compiled by a process of its own, for programs that start later, where that is wanted."""
    library = place.library(source) if _choice() == "beside" else None
    if library is not None and place.is_missing(library):
        import_module(f"{__name__}.compiling").start(source, library)


def _choice() -> str:
    choice = os.environ.get(VARIABLE) or "beside"
    if choice not in _CHOICES:
        raise ConfigurationError(f"{VARIABLE}: expected one of {', '.join(_CHOICES)}, got {choice!r}")
    return choice


def _loaded(library: Path, name: str) -> Any:
    spec = spec_from_file_location(name, library, loader=ExtensionFileLoader(name, str(library)))
    assert spec is not None and spec.loader is not None
    with suppress(ImportError):  # such as where machines with other libraries share a cache
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return None
