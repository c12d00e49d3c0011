"""Hooks: functions that a user registers and may remove, in the order in which they are called."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad_protocol.errors import AutogradError

Hook = Callable[..., Any]
Hooks = OrderedDict[int, Hook]

NONE_REPLACED: Final = "hook: can't replace a None gradient with a non-None value"

_numbers = itertools.count()


class RemovableHandle:
    """Removes a hook: by ``remove``, or at the end of a ``with`` block."""

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.id = next(_numbers)
        others = extra_dict if isinstance(extra_dict, list) else [] if extra_dict is None else [extra_dict]
        self._dicts = [hooks_dict, *others]

    @classmethod
    def add(
        cls, hooks: Hooks, hook: Hook, prepend: bool = False, flags: list[dict[int, bool]] | None = None
    ) -> RemovableHandle:
        """Add a hook and return its handle; it is called after the others, or with ``prepend`` before them."""
        handle = cls(hooks, extra_dict=flags or [])
        hooks[handle.id] = hook
        for flag in flags or ():
            flag[handle.id] = True
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def remove(self) -> None:
        """Remove the hook, so that it is not called any more."""
        for hooks in self._dicts:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def run_hooks(hooks: Hooks | None, gradients: Sequence[Any], *others: Any) -> list[Any]:
    """Call hooks of a node with a tuple of gradients, and return what they replace these by.

    Raises AutogradError where a hook returns as many gradients as there are not, or one in place of None.
    """
    current = list(gradients)
    for hook in list((hooks or {}).values()):
        returned = hook(tuple(current), *others)
        if returned is None:
            continue
        replaced = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if len(replaced) != len(current):
            raise AutogradError(
                f"hook {getattr(hook, '__name__', hook)!r} has returned an incorrect number of values (got "
                f"{len(replaced)}, but expected {len(current)})"
            )
        if any(before is None and after is not None for before, after in zip(current, replaced, strict=True)):
            raise AutogradError(NONE_REPLACED)
        current = replaced
    return current
