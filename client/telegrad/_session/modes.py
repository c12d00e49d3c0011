"""Modes of the calling program: which session it talks to, whether gradients are recorded, autocast, streams.

All but the default dtype belong to a thread, as in PyTorch. What differs from the default rides with each queued
operation, and the session tells the server where it changes between two operations: so it takes effect between the
right two, whichever threads they come from.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from telegrad_protocol import dtypes
from telegrad_protocol.autocast import DEFAULT_DTYPES, Autocast
from telegrad_protocol.dtypes import DType
from telegrad_protocol.messages import Mode

if TYPE_CHECKING:
    from .session import Session

F = TypeVar("F", bound=Callable[..., Any])
Streams: TypeAlias = tuple[tuple[str, int], ...]


class Modes:
    """What a thread's operations run under; ``of`` gives the one instance of its settings.

    ``streams`` pairs devices with the streams that are current there, where it is not the default one.
    """

    __slots__ = ("autocast", "grad", "inference", "records", "streams")
    _known: dict[tuple[Any, ...], Modes] = {}

    grad: bool
    inference: bool
    records: bool
    autocast: Autocast | None
    streams: Streams

    @staticmethod
    def of(grad: bool, inference: bool, autocast: Autocast | None, streams: Streams) -> Modes:
        """The one instance of these settings."""
        key = (grad, inference, autocast, streams)
        found = Modes._known.get(key)
        if found is None:
            found = Modes._known[key] = object.__new__(Modes)
            found.grad, found.inference, found.autocast, found.streams = key
            found.records = grad and not inference
        return found

    def but(self, **changed: Any) -> Modes:
        """These settings, with some of them changed."""
        settings = {"grad": self.grad, "inference": self.inference, "autocast": self.autocast, "streams": self.streams}
        return Modes.of(**{**settings, **changed})

    def changes_from(self, other: Modes) -> list[Mode]:
        """What to tell a server that has ``other``."""
        found = []
        if self.inference is not other.inference:
            found.append(Mode("inference", self.inference))
        if self.grad is not other.grad:
            found.append(Mode("grad", self.grad))
        if self.autocast is not other.autocast:
            found.append(Mode("autocast", self.autocast.encode() if self.autocast is not None else None))
        if self.streams != other.streams:
            ours, theirs = dict(self.streams), dict(other.streams)
            changed = [name for name in {**theirs, **ours} if ours.get(name, 0) != theirs.get(name, 0)]
            found.extend([Mode("stream", [name, ours.get(name, 0)]) for name in changed])
        return found


DEFAULT: Final = Modes.of(True, False, None, ())


class AutocastSettings(NamedTuple):
    """What a thread has set about autocast, also what is off: by device type, and the depth of regions."""

    dtypes: tuple[tuple[str, DType], ...] = tuple(DEFAULT_DTYPES.items())
    enabled: frozenset[str] = frozenset()
    cache_enabled: bool = True
    depth: int = 0

    @property
    def in_effect(self) -> Autocast | None:
        """What operations run under."""
        return Autocast.of([pair for pair in self.dtypes if pair[0] in self.enabled], self.cache_enabled)


class _Thread(threading.local):
    """What each thread has for itself."""

    modes: Modes = DEFAULT
    sessions: tuple[Session, ...] = ()
    autocast = AutocastSettings()


thread: Final = _Thread()
_shared: list[Session] = []
"""Sessions for threads that chose none, the last one first in line."""
_open: list[Session] = []


def _open_default() -> Session:
    """``_connect`` puts in its own."""
    raise NotImplementedError


def current_session() -> Session:
    """The session that new tensors belong to; connects to a private local server where there is none.

    A thread that has not chosen one shares the main thread's.
    """
    own = thread.sessions
    if own and own[-1].was_left:
        own = thread.sessions = tuple([session for session in own if not session.was_left])
    if own:
        return own[-1]
    return _shared[-1] if _shared else _open_default()


def has_session() -> bool:
    """Whether ``current_session`` would connect nowhere."""
    return bool(_shared) or any(not session.was_left for session in thread.sessions)


def enter(session: Session, is_block: bool = False) -> None:
    """Make ``session`` this thread's; also that of threads without one, if this is the main thread or there is none."""
    thread.sessions = (*[s for s in thread.sessions if s is not session], session)
    if session not in _open:
        _open.append(session)
    if is_block and len(_shared) > 1 and session in _shared:
        _shared.remove(session)
    elif not is_block and (not _shared or threading.current_thread() is threading.main_thread()):
        _shared[:] = [*[s for s in _shared if s is not session], session]


def leave(session: Session) -> None:
    """Forget a session, in all threads."""
    session.was_left = True
    thread.sessions = tuple([s for s in thread.sessions if s is not session])
    for listed in (_shared, _open):
        if session in listed:
            listed.remove(session)


def announce(session: Session) -> None:
    """Tell a new session the program's modes that differ from its defaults; a thread's ride with its operations."""
    if dtypes.get_default_dtype() is not dtypes.float32:
        session.submit(Mode("default_dtype", dtypes.get_default_dtype().code))


def open_sessions() -> list[Session]:
    """All sessions of the program that can be told something."""
    return [session for session in _open if session.is_open]


def set_default_dtype(dtype: DType) -> None:
    """The type of new floating-point tensors, and what Python floats count as."""
    dtypes.set_default_dtype(dtype)
    for session in open_sessions():
        session.submit(Mode("default_dtype", dtype.code))


def set_autocast(settings: AutocastSettings) -> None:
    """Let this thread's operations cast as ``settings`` say."""
    thread.autocast = settings
    thread.modes = thread.modes.but(autocast=settings.in_effect)


def forget_casts() -> None:
    """Tell all sessions to drop the casts of weights that they keep."""
    for session in open_sessions():
        session.submit(Mode("autocast_cache", None))


def _set_grad(enabled: bool) -> None:
    modes = thread.modes
    thread.modes = Modes.of(enabled, modes.inference, modes.autocast, modes.streams)


class _Block:
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
        """The mode holds while the generator runs, and not while whoever iterates over it does."""

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
                    generator.close()
                    raise
                except BaseException as error:
                    step, arguments = type(generator).throw, (error,)

        return inside

    def again(self) -> Any:
        """A fresh block with the same settings."""
        return self.__class__()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *_: object) -> None:
        raise NotImplementedError


class set_grad_enabled(_Block):
    """Record operations for differentiation, or do not; at once, and until the end of the block if used as one."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.previous = thread.modes.grad
        _set_grad(self.mode)

    def again(self) -> set_grad_enabled:
        return set_grad_enabled(self.mode)

    def __call__(self, function: F) -> F:
        _set_grad(self.previous)
        return super().__call__(function)

    def __enter__(self) -> None:
        _set_grad(self.mode)

    def __exit__(self, *_: object) -> None:
        _set_grad(self.previous)


class no_grad(_Block):
    """Do not record operations for differentiation in this block or function."""

    mode = False

    def __new__(cls, function: Any = None) -> Any:
        made = super().__new__(cls)
        return made if function is None else made(function)

    def __enter__(self) -> None:
        self.previous = thread.modes.grad
        _set_grad(self.mode)

    def __exit__(self, *_: object) -> None:
        _set_grad(self.previous)


class enable_grad(no_grad):
    """Record operations for differentiation in this block or function, also within ``no_grad``."""

    mode = True


class inference_mode(_Block):
    """Take autograd out of the path of every operation in this block or function."""

    def __new__(cls, mode: Any = True) -> Any:
        made = super().__new__(cls)
        if isinstance(mode, bool):
            return made
        made.mode = True
        return made(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def again(self) -> inference_mode:
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        modes = self.previous = thread.modes
        thread.modes = Modes.of(not self.mode, self.mode, modes.autocast, modes.streams)

    def __exit__(self, *_: object) -> None:
        thread.modes = thread.modes.but(grad=self.previous.grad, inference=self.previous.inference)


def is_grad_enabled() -> bool:
    """Whether operations are recorded for differentiation."""
    return thread.modes.grad


def is_inference_mode_enabled() -> bool:
    """Whether ``inference_mode`` is on."""
    return thread.modes.inference
