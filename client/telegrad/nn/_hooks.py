"""Hooks of modules: functions that run around ``forward``, for one module or, registered globally, for all.

A module whose ``_has_hooks`` is false is called without a look at its dictionaries, while no global hook exists.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

from telegrad._tensor.hooks import Flags, Hook, Hooks, RemovableHandle


class _GlobalHooks:
    """Hooks of all modules; ``any`` tells whether there may be one around ``forward``."""

    def __init__(self) -> None:
        self.any = False
        self.before: Hooks = OrderedDict()
        self.after: Hooks = OrderedDict()
        self.with_kwargs: Flags = OrderedDict()
        self.always_called: Flags = OrderedDict()
        self.is_full_backward_hook: bool | None = None
        """Whether the hooks of backward passes are full ones; None before there are any."""
        self.around: list[Hooks] = [self.before, self.after]
        """All hooks around ``forward``, those of backward passes among them."""
        self.on_buffer: Hooks = OrderedDict()
        self.on_module: Hooks = OrderedDict()
        self.on_parameter: Hooks = OrderedDict()

    def look(self) -> bool:
        """Return whether there is a hook around ``forward`` now, of which ``any`` tells from here on."""
        self.any = any(self.around)
        return self.any

    def registered(self, hooks: Hooks, module: Any, name: str, value: Any) -> Any:
        """Return what the hooks of a registration make of ``value``."""
        for hook in hooks.values():
            replaced = hook(module, name, value)
            value = value if replaced is None else replaced
        return value


GLOBAL = _GlobalHooks()


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, args)`` before ``forward`` of every module; what it returns replaces the arguments."""
    GLOBAL.any = True
    return RemovableHandle.add(GLOBAL.before, hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call ``hook(module, args, output)`` after ``forward`` of every module; what it returns replaces the output."""
    GLOBAL.any = True
    flags = [flag for flag, on in ((GLOBAL.with_kwargs, with_kwargs), (GLOBAL.always_called, always_call)) if on]
    return RemovableHandle.add(GLOBAL.after, hook, flags=flags)


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, name, buffer)`` whenever a buffer is registered; what it returns replaces the buffer."""
    return RemovableHandle.add(GLOBAL.on_buffer, hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, name, submodule)`` whenever a submodule is registered; what it returns replaces it."""
    return RemovableHandle.add(GLOBAL.on_module, hook)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, name, param)`` whenever a parameter is registered; what it returns replaces it."""
    return RemovableHandle.add(GLOBAL.on_parameter, hook)


class HooksMixin:
    """The part of ``Module`` that registers hooks around ``forward``."""

    _has_hooks: bool
    _forward_pre_hooks: Hooks
    _forward_pre_hooks_with_kwargs: Flags
    _forward_hooks: Hooks
    _forward_hooks_with_kwargs: Flags
    _forward_hooks_always_called: Flags

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns replaces the arguments.

        With ``with_kwargs`` the hook is called as ``hook(module, args, kwargs)`` and may return both.
        """
        self._has_hooks = True
        flags = [self._forward_pre_hooks_with_kwargs] if with_kwargs else []
        return RemovableHandle.add(self._forward_pre_hooks, hook, prepend, flags)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after ``forward``; what it returns replaces the output.

        With ``with_kwargs`` the hook is called as ``hook(module, args, kwargs, output)``; with ``always_call`` also if
        ``forward`` raises an exception.
        """
        self._has_hooks = True
        pairs = ((self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called, always_call))
        return RemovableHandle.add(self._forward_hooks, hook, prepend, [flag for flag, on in pairs if on])


def call_with_hooks(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call ``module.forward`` between the hooks that see its arguments and those that see its output."""
    if GLOBAL.any:
        GLOBAL.look()  # if they are gone by now, modules are called without a look at hooks again
    called: set[int] = set()
    result: Any = None
    try:
        args, kwargs = _before(module, args, kwargs)
        result = module.forward(*args, **kwargs)
        for number, hook, takes_kwargs, _ in _after_hooks(module):
            called.add(number)
            replaced = hook(module, args, kwargs, result) if takes_kwargs else hook(module, args, result)
            result = result if replaced is None else replaced
    except Exception:
        for number, hook, takes_kwargs, always in _after_hooks(module):
            if always and number not in called:
                _call_after_failure(module, hook, takes_kwargs, args, kwargs, result)
        raise
    return result


def _before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Call the hooks that see the arguments, and return the arguments as they leave them."""
    own: Flags = module._forward_pre_hooks_with_kwargs
    for number, hook in (*GLOBAL.before.items(), *module._forward_pre_hooks.items()):
        if number in own:
            replaced = hook(module, args, kwargs)
            if replaced is not None and not (isinstance(replaced, tuple) and len(replaced) == 2):
                raise RuntimeError(
                    f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {replaced}."
                )
            args, kwargs = (args, kwargs) if replaced is None else replaced
        else:
            replaced = hook(module, args)
            args = args if replaced is None else replaced if isinstance(replaced, tuple) else (replaced,)
    return args, kwargs


def _after_hooks(module: Any) -> list[tuple[int, Hook, bool, bool]]:
    """Return the hooks that see the output: number, function, whether it takes keywords, whether it always runs."""
    everyones = [(n, h, n in GLOBAL.with_kwargs, n in GLOBAL.always_called) for n, h in GLOBAL.after.items()]
    with_kwargs, always = module._forward_hooks_with_kwargs, module._forward_hooks_always_called
    return everyones + [(n, h, n in with_kwargs, n in always) for n, h in module._forward_hooks.items()]


def _call_after_failure(
    module: Any, hook: Hook, takes_kwargs: bool, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    try:
        if takes_kwargs:
            hook(module, args, kwargs, result)
        else:
            hook(module, args, result)
    except Exception as error:
        warnings.warn(
            f"module forward hook with ``always_call=True`` raised an exception that was silenced as another error was "
            f"raised in forward: {error}",
            stacklevel=2,
        )
