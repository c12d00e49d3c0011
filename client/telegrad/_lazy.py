"""Names of a package that are imported when a program first asks for them, so that the package itself loads quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any


def lazy(
    package: str,
    homes: Mapping[str, str],
    made: Mapping[str, str] = MappingProxyType({}),
    make: Callable[[str], Any] | None = None,
    publish: Callable[[ModuleType, Any], object] = lambda module, value: None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, whose other names are in ``homes`` and ``made``.

    ``homes`` has for each module of the names, below the package, the names in it, separated by spaces. The module is
    such a name itself, unless it is private or has a dot. ``made`` has for each name of a function what ``make`` makes
    it of. ``publish`` is called with the package and what comes from another module. A name is kept in the package once
    it was asked for.
    """
    places = {name: home for home, names in homes.items() for name in names.split()}
    modules = {home for home in homes if "." not in home and home[0] != "_"}

    def get(name: str) -> Any:
        if name in places:
            value = getattr(import_module(f"{package}.{places[name]}"), name)
            publish(sys.modules[package], value)
        elif name in modules:
            value = import_module(f"{package}.{name}")
        elif make is not None and name in made:
            value = make(made[name])
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places, *modules, *made})

    return get, list_names
