"""``autocast``: in its regions the server casts operands as PyTorch's lists say. Settings belong to a thread.

A region costs no round trip: its settings travel with the operations in it, and its end is one instruction.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from telegrad._session.current import current_session, open_sessions
from telegrad._session.grad_mode import ModeBlock
from telegrad._session.thread_modes import AutocastSettings, set_autocast, thread
from telegrad_protocol.autocast import DEVICE_TYPES, LOWER_DTYPES, check_device_type
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.messages import Mode
from telegrad_protocol.meta import Device

F = TypeVar("F", bound=Callable[..., Any])


class autocast(ModeBlock):
    """Run the operations of this block or function in a lower precision where that is safe, in float32 where not."""

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if dtype is not None and not isinstance(dtype, DType):
            raise ArgumentTypeError(f"autocast: expected dtype to be a dtype or None, not {dtype!r}")
        self.device = device_type_of("autocast", device_type)
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtype
        self._enabled = enabled and _is_possible(self.device, self.fast_dtype)
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else bool(cache_enabled)

    def __call__(self, function: F) -> F:
        if not callable(function):
            raise ArgumentTypeError(f"autocast: expected a callable to decorate, got {type(function).__name__}")
        return super().__call__(function)

    def again(self) -> autocast:
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        return fresh

    def __enter__(self) -> autocast:
        self.previous = settings = thread.autocast
        others = settings.enabled - {self.device}
        set_autocast(
            AutocastSettings(
                dtypes=_replaced(settings, self.device, self.fast_dtype),
                enabled=others | {self.device} if self._enabled else others,
                cache_enabled=self._cache_enabled,
                depth=settings.depth + 1,
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        set_autocast(self.previous)
        if not self.previous.depth:
            clear_autocast_cache()


def _enter_autocast(*arguments: Any) -> autocast:
    """Enter a region of these arguments, and return it; graphs call this."""
    return autocast(*arguments).__enter__()


def _exit_autocast(mode: autocast) -> None:
    """Leave a region that was entered by ``_enter_autocast``."""
    mode.__exit__(None, None, None)


def device_type_of(name: str, device: str) -> str:
    """Return the type of a device given by its type or name; raises ArgumentError if autocast does not know it."""
    if not isinstance(device, str):
        raise ArgumentError(f"{name}: expected device_type of type str, got {type(device).__name__}")
    return check_device_type(name, Device(device).type)


def _is_possible(device_type: str, dtype: DType) -> bool:
    """Tell whether a region of these settings casts anything; warns if not, as PyTorch does."""
    if device_type == "cuda" and not any(d.type == "cuda" for d in current_session().devices):
        warnings.warn("autocast: CUDA is not available; disabling autocast", stacklevel=3)
        return False
    if dtype not in LOWER_DTYPES:
        known = ", ".join(map(repr, LOWER_DTYPES))
        warnings.warn(f"autocast: {dtype!r} is not among the dtypes {known}; disabling autocast", stacklevel=3)
        return False
    return True


def _replaced(settings: AutocastSettings, device_type: str, dtype: DType) -> tuple[tuple[str, DType], ...]:
    return tuple([(name, dtype if name == device_type else present) for name, present in settings.dtypes])


def is_autocast_available(device_type: str) -> bool:
    """Tell whether autocast knows this type of device."""
    return device_type in DEVICE_TYPES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Tell whether operations on this type of device are cast."""
    return device_type in thread.autocast.enabled  # no other device, such as "mps", has an autocast


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Cast operations on this type of device, or do not; ``set_autocast_enabled(enabled)`` is about cuda."""
    if isinstance(device_type, bool):
        return set_autocast_enabled("cuda", device_type)
    name = check_device_type("set_autocast_enabled", device_type)
    settings = thread.autocast
    set_autocast(settings._replace(enabled=settings.enabled | {name} if enabled else settings.enabled - {name}))


def get_autocast_dtype(device_type: str) -> DType:
    """Return the dtype that operations on this type of device are cast to."""
    return dict(thread.autocast.dtypes)[check_device_type("get_autocast_dtype", device_type)]


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Choose the type that operations on this type of device are cast to."""
    name = check_device_type("set_autocast_dtype", device_type)
    if dtype not in LOWER_DTYPES:
        raise ArgumentError(f"set_autocast_dtype: expected float16 or bfloat16, got {dtype!r}")
    set_autocast(thread.autocast._replace(dtypes=_replaced(thread.autocast, name, dtype)))


def is_autocast_cache_enabled() -> bool:
    """Tell whether casts of weights are kept until the outermost region ends."""
    return thread.autocast.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of weights, or do not."""
    set_autocast(thread.autocast._replace(cache_enabled=bool(enabled)))


def clear_autocast_cache() -> None:
    """Tell all sessions to drop the casts of weights that they keep."""
    for session in open_sessions():
        session.submit(Mode("autocast_cache", None))


def autocast_increment_nesting() -> int:
    """Count a region that is entered by hand; returns how many are open."""
    return _nest(1)


def autocast_decrement_nesting() -> int:
    """Count a region that is left by hand; returns how many are open."""
    return _nest(-1)


def _nest(step: int) -> int:
    set_autocast(thread.autocast._replace(depth=thread.autocast.depth + step))
    return thread.autocast.depth
