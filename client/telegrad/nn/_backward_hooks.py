"""Registration of the hooks that see the gradients of a module's inputs and outputs.

A call of a module with such hooks stands between two functions whose derivatives call them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from telegrad._session.grad_mode import is_grad_enabled
from telegrad._tensor.hooks import Hook, Hooks, RemovableHandle

from ._former_backward_hooks import hook_node
from ._gradient_boundary import GradientBoundary
from ._hooks import GLOBAL

_EVERYONES: Hooks = OrderedDict()
_EVERYONES_BEFORE: Hooks = OrderedDict()
GLOBAL.around += [_EVERYONES, _EVERYONES_BEFORE]
_BOTH = "Cannot use both regular backward hooks and full backward hooks {}. Please use only one of them."
_AS_GLOBAL = "as a global Module hook"
_ON_MODULE = "on a single Module"


def register_module_backward_hook(hook: Hook) -> RemovableHandle:
    """Register ``hook(module, grad_input, grad_output)`` for all modules in the former way, which excludes full hooks.

    It sees the gradients of the operation that computed the output, which takes a round trip in each call.
    """
    if GLOBAL.is_full_backward_hook is True:
        raise RuntimeError(_BOTH.format(_AS_GLOBAL))
    GLOBAL.is_full_backward_hook = False
    GLOBAL.any = True
    return RemovableHandle.add(_EVERYONES, hook)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Register ``hook(module, grad_input, grad_output)`` for all modules."""
    if GLOBAL.is_full_backward_hook is False:
        raise RuntimeError(_BOTH.format(_AS_GLOBAL))
    GLOBAL.is_full_backward_hook = True
    GLOBAL.any = True
    return RemovableHandle.add(_EVERYONES, hook)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Register ``hook(module, grad_output)`` for all modules."""
    GLOBAL.any = True
    return RemovableHandle.add(_EVERYONES_BEFORE, hook)


class BackwardHooksMixin:
    """The part of ``Module`` that registers hooks of the backward pass."""

    _has_hooks: bool
    _backward_hooks: Hooks
    _backward_pre_hooks: Hooks
    _is_full_backward_hook: bool | None

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Register ``hook(module, grad_output)``; what it returns replaces the gradients of the outputs."""
        self._has_hooks = True
        return RemovableHandle.add(self._backward_pre_hooks, hook, prepend)

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """Register ``hook(module, grad_input, grad_output)`` in the former way, which excludes full hooks.

        It sees the gradients of the operation that computed the output, which takes a round trip in each call.
        """
        if self._is_full_backward_hook is True:
            raise RuntimeError(_BOTH.format(_ON_MODULE))
        self._is_full_backward_hook = False
        self._has_hooks = True
        return RemovableHandle.add(self._backward_hooks, hook)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Register ``hook(module, grad_input, grad_output)``; what it returns replaces the gradients of the inputs."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(_BOTH.format(_ON_MODULE))
        self._is_full_backward_hook = True
        self._has_hooks = True
        return RemovableHandle.add(self._backward_hooks, hook, prepend)

    def _call_with_backward_hooks(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the module between the boundaries at which its hooks see gradients, where it has such hooks."""
        hooks: list[Hook] = []
        former: list[Hook] = []
        (former if GLOBAL.is_full_backward_hook is False else hooks).extend(_EVERYONES.values())
        (former if self._is_full_backward_hook is False else hooks).extend(self._backward_hooks.values())
        before = [*_EVERYONES_BEFORE.values(), *self._backward_pre_hooks.values()]
        if not (hooks or before or former) or not is_grad_enabled():
            return call(self, args, kwargs)
        boundary = GradientBoundary(self, hooks, before) if hooks or before else None
        args = args if boundary is None else boundary.enter(args)
        result = call(self, args, kwargs)
        if former:
            hook_node(self, former, args, result)
        return result if boundary is None else boundary.leave(result)
