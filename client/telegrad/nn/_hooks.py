"""Hooks around a module's ``forward``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

Hooks = dict[int, tuple[Callable[..., Any], bool]]
"""For every hook by its number: the function, and whether it also takes the keyword arguments of ``forward``."""

_numbers = itertools.count()


class RemovableHandle:
    """Removes a hook: by ``remove``, or at the end of a ``with`` block."""

    def __init__(self, hooks: Hooks, number: int) -> None:
        self._hooks = hooks
        self.id = number

    @classmethod
    def add(cls, hooks: Hooks, entry: tuple[Callable[..., Any], bool], prepend: bool) -> RemovableHandle:
        """Add a hook and return its handle; it is called after the others, or with ``prepend`` before them."""
        number = next(_numbers)
        others = dict(hooks) if prepend else {}
        if prepend:
            hooks.clear()
        hooks[number] = entry
        hooks.update(others)
        return cls(hooks, number)

    def remove(self) -> None:
        """Remove the hook, so that it is not called any more."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def call_with_hooks(module: Any, before: Hooks, after: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``module.forward`` between the hooks that see its arguments and those that see its output."""
    for hook, takes_kwargs in list(before.values()):
        if takes_kwargs:
            replaced = hook(module, args, kwargs)
            args, kwargs = (args, kwargs) if replaced is None else replaced
        else:
            replaced = hook(module, args)
            args = args if replaced is None else replaced if isinstance(replaced, tuple) else (replaced,)
    output = module.forward(*args, **kwargs)
    for hook, takes_kwargs in list(after.values()):
        replaced = hook(module, args, kwargs, output) if takes_kwargs else hook(module, args, output)
        output = output if replaced is None else replaced
    return output
