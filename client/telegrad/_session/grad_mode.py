"""``no_grad``, ``enable_grad``, ``set_grad_enabled`` and ``inference_mode``: which operations are recorded.

Each changes the modes of the calling thread (``thread_modes``). Knows neither sessions nor tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Self, TypeVar, overload

from .thread_modes import thread

F = TypeVar("F", bound=Callable[..., Any])
entered_inference: list[bool] = []
"""Has an element once inference mode was on: before, no tensor was made in it."""


def _set_grad_enabled(enabled: bool) -> None:
    """Record operations or do not; modes that answer functions are asked under this name, as in PyTorch."""
    modes = thread.modes
    thread.modes = modes.of(
        enabled, modes.inference, modes.autocast, modes.streams, modes.gpu, modes.default_device, modes.packs
    )


class ModeBlock:
    """A context manager that is also a decorator, of functions and of generators."""

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return self._around_generator(function)  # type: ignore[no-any-return]

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self.again():
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]

    def _around_generator(self, function: Any) -> Any:
        """Return a generator function whose body runs in the mode, while the code that iterates over it does not."""

        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            step: Any = next
            arguments: tuple[Any, ...] = ()
            while True:
                try:
                    with self.again():
                        item = step(generator, *arguments)
                except StopIteration as end:
                    return end.value
                try:
                    step, arguments = type(generator).send, ((yield item),)
                except GeneratorExit:
                    with self.again():
                        generator.close()
                    raise
                except BaseException as error:
                    step, arguments = type(generator).throw, (error,)

        return inside

    def again(self) -> Any:
        """Return a new block with the same settings, so that a decorated function may call itself."""
        return self.__class__()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError


class set_grad_enabled(ModeBlock):
    """Record operations for differentiation, or do not; at once, and until the end of the block if used as one."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.previous = thread.modes.grad
        _set_grad_enabled(self.mode)

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    def again(self) -> set_grad_enabled:
        return set_grad_enabled(self.mode)

    def __call__(self, function: F) -> F:
        _set_grad_enabled(self.previous)
        return super().__call__(function)

    def __enter__(self) -> None:
        _set_grad_enabled(self.mode)

    def __exit__(self, *_: object) -> None:
        _set_grad_enabled(self.previous)


class no_grad(ModeBlock):
    """Do not record operations for differentiation in this block or function."""

    mode = False
    __signature__ = inspect.Signature()

    @overload
    def __new__(cls, function: None = None) -> Self: ...
    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]  # as a decorator without parentheses
    def __new__(cls, function: Any = None) -> Any:
        block: Any = super().__new__(cls)
        return block if function is None else block(function)

    def __enter__(self) -> None:
        self.previous = thread.modes.grad
        _set_grad_enabled(self.mode)

    def __exit__(self, *_: object) -> None:
        _set_grad_enabled(self.previous)


class enable_grad(no_grad):
    """Record operations for differentiation in this block or function, also within ``no_grad``."""

    mode = True
    __signature__ = inspect.Signature(
        [inspect.Parameter("orig_func", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)]
    )


class inference_mode(ModeBlock):
    """Take autograd out of the path of every operation in this block or function."""

    def __new__(cls, mode: Any = True) -> Any:
        block = super().__new__(cls)
        if isinstance(mode, bool):
            return block
        block.mode = True
        return block(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def again(self) -> inference_mode:
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        if self.mode and not entered_inference:
            entered_inference.append(True)
        modes = self.previous = thread.modes
        thread.modes = modes.of(
            not self.mode, self.mode, modes.autocast, modes.streams, modes.gpu, modes.default_device, modes.packs
        )

    def __exit__(self, *_: object) -> None:
        thread.modes = thread.modes.but(grad=self.previous.grad, inference=self.previous.inference)


def is_grad_enabled() -> bool:
    """Tell whether operations are recorded for differentiation."""
    return thread.modes.grad


def is_inference_mode_enabled() -> bool:
    """Tell whether ``inference_mode`` is on."""
    return thread.modes.inference
