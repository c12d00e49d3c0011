"""The usual path of a call in C, and that of conditions, for interpreters whose machine has a compiler (0083, 0087).

``calls.c`` does in one go what ``_ops/call.py``, ``_session/call_sites.py`` and ``_session/sending/send_queue.py`` say,
and leaves to them whatever is unusual. It is compiled once per machine and Python, into the user's cache, and later
programs find it there. Nothing depends on it: without it, calls take longer. ``binding`` gives it what it works on.
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
ABSENT: Final = object()
"""What stands in conditions for an entry that there is none of."""
_is_looked_for = False
"""Whether it was looked if a process is to compile beside this one."""


def load() -> Any:
    """Return the module; None where Python is to do without, as while it is not compiled."""
    choice = _choice()
    library = None if choice == "never" else place.library()
    if library is None:
        return None
    if choice == "wait" and place.is_missing(library):
        import_module(f"{__name__}.compiling").compile_library(library)
    return _loaded(library) if place.is_trusted(library) else None


def compile_beside() -> None:
    """Have it compiled by a process of its own, for programs that start later, where that is wanted and not done."""
    global _is_looked_for
    if _is_looked_for or _choice() != "beside":
        return
    _is_looked_for = True
    library = place.library()
    if library is not None and place.is_missing(library):
        import_module(f"{__name__}.compiling").start(library)


def _choice() -> str:
    choice = os.environ.get(VARIABLE) or "beside"
    if choice not in _CHOICES:
        raise ConfigurationError(f"{VARIABLE}: expected one of {', '.join(_CHOICES)}, got {choice!r}")
    return choice


def _loaded(library: Path) -> Any:
    name = f"{__name__}._calls"
    spec = spec_from_file_location(name, library, loader=ExtensionFileLoader(name, str(library)))
    assert spec is not None and spec.loader is not None
    with suppress(ImportError):  # such as where machines with other libraries share a cache
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return None
