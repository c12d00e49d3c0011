"""Finds the modules of all kernel families. Importing them registers their factories with the operations.

A family is a sub-package of ``server.engine.cuda``; no list of families or of their modules is kept anywhere.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from . import __name__ as package_name
from . import __path__ as package_path

_CALLS = "calls"
"""The module of a family that only ``check`` needs."""


def import_families() -> list[ModuleType]:
    """Import every module of every family but its ``calls``, in alphabetical order, and return them.

    The factory that was registered last is asked first. A module whose factories must be asked before those of another
    module imports that one; the alphabet decides nothing then.
    """
    return [importlib.import_module(name) for name in _module_names() if not name.endswith(f".{_CALLS}")]


def import_calls() -> list[ModuleType]:
    """Import and return the ``calls`` of every family that has such a module."""
    return [importlib.import_module(name) for name in _module_names() if name.endswith(f".{_CALLS}")]


def _module_names() -> Iterator[str]:
    for family in pkgutil.iter_modules(package_path, f"{package_name}."):
        if family.ispkg:
            package = importlib.import_module(family.name)
            for module in pkgutil.iter_modules(package.__path__, f"{family.name}."):
                yield module.name
