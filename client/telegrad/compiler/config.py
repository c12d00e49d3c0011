"""Objects that take whatever settings of PyTorch's compiler a program sets, and change nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Config(ModuleType):
    """Settings of a compiler that is not there. Any can be set; one that was not set is an object of the same kind."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        inner = Config(f"{self.__name__}.{name}")
        setattr(self, name, inner)
        return inner

    @classmethod
    def registered(cls, name: str) -> Config:
        """Return an object that ``import name`` gives."""
        sys.modules[name] = config = cls(name)
        return config

    def __bool__(self) -> bool:
        return False

    @contextmanager
    def patch(self, *settings: Any, **named: Any) -> Iterator[None]:
        """Do nothing: no setting changes what runs."""
        yield
