"""Modes of the calling program: which session it talks to, whether gradients are recorded.

Each is told to the server as an instruction in the stream, so that it takes effect between the right two operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.messages import Mode

if TYPE_CHECKING:
    from ._session import Session

F = TypeVar("F", bound=Callable[..., Any])

grad_enabled = True
inference_enabled = False
_current: list[Session] = []
_open_default: Callable[[], Session]


def current_session() -> Session:
    """The session that new tensors belong to; connects to a private local server where there is none."""
    return _current[-1] if _current else _open_default()


def all_sessions() -> list[Session]:
    """Sessions from the outermost to the current one."""
    return list(_current)


def tell_all(name: str, value: Any) -> None:
    """Announce a mode to every open session."""
    for session in _current:
        if session.is_open:
            session.submit(Mode(name, value))


def announce_all(session: Session) -> None:
    """Tell a new session the modes that differ from its defaults."""
    if not grad_enabled:
        session.submit(Mode("grad", False))
    if inference_enabled:
        session.submit(Mode("inference", True))
    if dtypes.get_default_dtype() is not dtypes.float32:
        session.submit(Mode("default_dtype", dtypes.get_default_dtype().code))


def set_default_dtype(dtype: DType) -> None:
    """The type of new floating-point tensors, and what Python floats count as."""
    dtypes.set_default_dtype(dtype)
    tell_all("default_dtype", dtype.code)


class _Block:
    """A context manager that is also a decorator."""

    def __call__(self, function: F) -> F:
        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self.__class__.again(self):
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]

    def again(self) -> Any:
        """A fresh block with the same settings."""
        return self.__class__()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError


def _set_grad(enabled: bool) -> None:
    global grad_enabled
    if enabled != grad_enabled:
        grad_enabled = enabled
        tell_all("grad", enabled)


class set_grad_enabled(_Block):  # noqa: N801 - PyTorch's name
    """Record operations for differentiation, or do not; at once, and until the end of the block if used as one."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.previous = grad_enabled
        _set_grad(mode)

    def again(self) -> set_grad_enabled:
        return set_grad_enabled(self.mode)

    def __call__(self, function: F) -> F:
        _set_grad(self.previous)
        return super().__call__(function)

    def __enter__(self) -> None:
        _set_grad(self.mode)

    def __exit__(self, *_: object) -> None:
        _set_grad(self.previous)


class no_grad(_Block):  # noqa: N801 - PyTorch's name
    """Do not record operations for differentiation in this block or function."""

    mode = False

    def __new__(cls, function: Any = None) -> Any:
        made = super().__new__(cls)
        return made if function is None else made(function)

    def __enter__(self) -> None:
        self.previous = grad_enabled
        _set_grad(self.mode)

    def __exit__(self, *_: object) -> None:
        _set_grad(self.previous)


class enable_grad(no_grad):  # noqa: N801 - PyTorch's name
    """Record operations for differentiation in this block or function, also within ``no_grad``."""

    mode = True


class inference_mode(_Block):  # noqa: N801 - PyTorch's name
    """Take autograd out of the path of every operation in this block or function."""

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def again(self) -> inference_mode:
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        global inference_enabled
        self.previous = (inference_enabled, grad_enabled)
        inference_enabled = self.mode
        tell_all("inference", self.mode)
        _set_grad(not self.mode)

    def __exit__(self, *_: object) -> None:
        global inference_enabled
        inference_enabled = self.previous[0]
        tell_all("inference", inference_enabled)
        _set_grad(self.previous[1])


def is_grad_enabled() -> bool:
    """Whether operations are recorded for differentiation."""
    return grad_enabled


def is_inference_mode_enabled() -> bool:
    """Whether ``inference_mode`` is on."""
    return inference_enabled
