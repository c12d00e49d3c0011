"""Functions that a compiled one calls as they are: ``torch._dynamo.decorators.leaf_function``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from telegrad._session.grad_mode import is_grad_enabled
from telegrad._tensor.listed import tensors_in
from telegrad.autograd.graph import register_multi_grad_hook
from telegrad.compiler import regions
from telegrad_protocol.errors import ArgumentError


def leaf_function(fn: Callable[..., Any] | None = None, *, mutates_args: set[str] | None = None) -> Any:
    """Have a compiled function call this one as it is: what it reads and prints is no graph break.

    ``register_fake`` gives it a function that tells the shapes of its results, without which a call raises
    ArgumentError; here it is not called. ``register_multi_grad_hook`` gives it one that is called with the gradients of
    the tensors that a call was given, once a backward pass has all of them.
    """
    if fn is None:
        return functools.partial(leaf_function, mutates_args=mutates_args)
    given: dict[str, Any] = {}

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "fake" not in given:
            raise ArgumentError(
                f"leaf_function '{fn.__name__}' requires a fake implementation. Please provide one using the "
                "@<func>.register_fake decorator."
            )
        result = regions.run_disabled(fn, args, kwargs, "")
        if "hook" in given:
            _watch(given["hook"], (args, kwargs))
        return result

    call.register_fake = functools.partial(_keep, given, "fake")  # type: ignore[attr-defined]
    call.register_multi_grad_hook = functools.partial(_keep, given, "hook")  # type: ignore[attr-defined]
    return call


def _keep(given: dict[str, Any], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    given[name] = function
    return function


def _watch(hook: Callable[..., Any], arguments: Any) -> None:
    """Have a hook called with the gradients of those tensors in the arguments that have one."""
    watched = [tensor for tensor in tensors_in(arguments) if tensor.requires_grad]
    if watched and is_grad_enabled():
        register_multi_grad_hook(watched, lambda gradients: hook(*gradients))
