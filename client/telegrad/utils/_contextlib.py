"""Context managers that are decorators too, by the names that packages derive from."""

from __future__ import annotations

from typing import Any

from telegrad._session.grad_mode import ModeBlock


class _DecoratorContextManager(ModeBlock):
    """A context manager that decorates functions and generators; a subclass with arguments overrides ``clone``."""

    def __call__(self, orig_func: Any) -> Any:
        return super().__call__(orig_func)

    def clone(self) -> Any:
        """Return the manager that one call of a decorated function enters."""
        return self.__class__()

    def again(self) -> Any:
        return self.clone()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that also decorates without parentheses."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
