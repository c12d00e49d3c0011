"""``torch.classes``: classes that compiled libraries register with PyTorch, of which a client can have none."""

from __future__ import annotations

from typing import NoReturn

from telegrad.ops import load_library as load_library
from telegrad.ops import loaded_libraries as loaded_libraries


class ClassNamespace:
    """The classes of one namespace. There are none, so RuntimeError for every name, as PyTorch has it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"Tried to instantiate class '{self.name}.{name}', but it does not exist: classes of compiled libraries "
            "are registered with PyTorch's process; write it in Python, and its operators with torch.library.custom_op"
        )


_spaces: dict[str, ClassNamespace] = {}


def __getattr__(name: str) -> ClassNamespace:
    """Return a namespace by its name, the same one each time."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _spaces.setdefault(name, ClassNamespace(name))
