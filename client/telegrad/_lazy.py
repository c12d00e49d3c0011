"""Names of a package that are imported when a program first asks for them, so that the package itself loads quickly."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, whose other names are in ``homes``.

    ``homes`` has for each module of the names, below the package, the names in it, separated by spaces. The module is
    such a name itself, unless it is private or has a dot. A name is kept in the package once it was asked for.
    """
    places = {name: home for home, names in homes.items() for name in names.split()}
    modules = {home for home in homes if "." not in home and home[0] != "_"}

    def get(name: str) -> Any:
        if name in places:
            value = getattr(import_module(f"{package}.{places[name]}"), name)
        elif name in modules:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places, *modules})

    return get, list_names
