"""Hooks: functions that a user registers and may remove, in the order in which they are called."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final
from weakref import ref

from telegrad_protocol.errors import ArgumentTypeError, AutogradError

Hook = Callable[..., Any]
Hooks = OrderedDict[int, Hook]

Flags = OrderedDict[int, bool]
NONE_REPLACED: Final = "hook: can't replace a None gradient with a non-None value"


class RemovableHandle:
    """Removes a hook: by ``remove``, or at the end of a ``with`` block.

    ``hooks_dict_ref`` and ``extra_dict_ref`` refer weakly to what has the number ``id`` of the hook. A
    copy from a file refers to the dictionaries that were written with it, and to an empty one otherwise.
    """

    next_id: ClassVar[int] = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        others = extra_dict if isinstance(extra_dict, list) else [] if extra_dict is None else [extra_dict]
        self.hooks_dict_ref = ref(hooks_dict)
        self.extra_dict_ref = tuple([ref(other) for other in others])
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1

    @classmethod
    def add(cls, hooks: Hooks, hook: Hook, prepend: bool = False, flags: list[Flags] | None = None) -> RemovableHandle:
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
        for dictionary in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = dictionary()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks_dict_ref(), self.id, tuple([dictionary() for dictionary in self.extra_dict_ref])

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id = state[0], state[1]
        self.hooks_dict_ref = ref(OrderedDict() if hooks is None else hooks)
        others = state[2] if len(state) > 2 else ()
        self.extra_dict_ref = tuple([ref(OrderedDict() if other is None else other) for other in others])
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def run_hooks(hooks: Hooks | None, gradients: Sequence[Any], *others: Any) -> list[Any]:
    """Call hooks of a node with a tuple of gradients, and return what they replace these by.

    Raises ArgumentTypeError where a hook returns something else than a tuple of tensors, AutogradError where it returns
    as many gradients as there are not, or one in place of None.
    """
    current = list(gradients)
    for hook in list((hooks or {}).values()):
        returned = hook(tuple(current), *others)
        if returned is None:
            continue
        name = repr(getattr(hook, "__name__", hook))
        if not isinstance(returned, tuple):
            raise ArgumentTypeError(f"hook {name}: expected tuple, but hook returned '{type(returned).__name__}'")
        replaced = list(returned)
        if len(replaced) != len(current):
            raise AutogradError(
                f"hook {name} has returned an incorrect number of values (got {len(replaced)}, but expected "
                f"{len(current)})"
            )
        for one in replaced:
            if one is not None and not hasattr(one, "_meta"):
                raise ArgumentTypeError(f"hook {name}: expected Tensor, but hook returned '{type(one).__name__}'")
        if any(before is None and after is not None for before, after in zip(current, replaced, strict=True)):
            raise AutogradError(NONE_REPLACED)
        current = replaced
    return current
