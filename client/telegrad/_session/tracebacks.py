"""Tracebacks without telegrad's own frames, which tell a user nothing; ``TELEGRAD_FULL_TRACEBACK=1`` shows them all.

Frames are left out where an uncaught error is shown, by Python or by IPython: until then errors have all their frames,
also for debuggers, and code that raises none pays nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from telegrad_protocol.errors import TelegradError

from .own_code import is_own, running_shell

_CALLED: Final = frozenset(
    (
        "anyio", "contextlib", "httpcore", "httpx", "msgspec", "numpy", "selectors", "socket", "ssl", "threading",
        "websockets",
    )
)  # fmt: skip
"""Modules whose frames are left out, too, where telegrad called them."""


def folds() -> bool:
    """Tell whether frames are to be left out."""
    return os.environ.get("TELEGRAD_FULL_TRACEBACK", "0") in ("", "0")


def fold(error: BaseException) -> TracebackType | None:
    """Return the error's traceback without telegrad's frames; all of it where telegrad itself seems to be at fault."""
    kept: list[TracebackType] = []
    is_hidden = False
    step = error.__traceback__
    while step is not None:
        is_hidden = is_own(step.tb_frame.f_code.co_filename) or (is_hidden and _is_called(step))
        if not is_hidden:
            kept.append(step)
        step = step.tb_next
    if is_hidden and not isinstance(error, (TelegradError, KeyboardInterrupt)):
        return error.__traceback__
    rest: TracebackType | None = None
    for step in reversed(kept):
        rest = TracebackType(rest, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return rest


def _is_called(step: TracebackType) -> bool:
    return str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0] in _CALLED


@contextmanager
def folded(error: BaseException | None) -> Iterator[TracebackType | None]:
    """Leave frames out of an error's traceback, and of those of its causes, within the block."""
    full: list[tuple[BaseException, TracebackType | None]] = []
    pending = [error]
    while pending:
        one = pending.pop()
        if one is not None and not any(one is other for other, _ in full):
            full.append((one, one.__traceback__))
            pending += [one.__cause__, one.__context__]
            if isinstance(one, BaseExceptionGroup):
                pending += one.exceptions
    try:
        for one, _ in full:
            one.__traceback__ = fold(one)
        yield None if error is None else error.__traceback__
    finally:
        for one, traceback in full:
            one.__traceback__ = traceback


def _show_folded(show: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        with folded(error) as short:
            show(kind, error, short)

    return excepthook


def _show_threads_folded(show: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(args: Any) -> None:
        with folded(args.exc_value) as short:
            show(threading.ExceptHookArgs((args.exc_type, args.exc_value, short, args.thread)))

    return excepthook


def install() -> None:
    """Leave frames out of what this process shows of errors that nobody caught, outside of IPython."""
    if folds():
        sys.excepthook = _show_folded(sys.excepthook)
        threading.excepthook = _show_threads_folded(threading.excepthook)


def install_in_notebook() -> None:
    """Leave frames out of what IPython shows of errors, if this program runs in it; does nothing a second time."""
    printer = getattr(running_shell(), "InteractiveTB", None)
    if not folds() or printer is None or "structured_traceback" in vars(printer):
        return
    show = printer.structured_traceback

    def structured_traceback(etype: Any, evalue: Any = None, etb: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(evalue, BaseException):
            return show(etype, evalue, etb, *args, **kwargs)
        with folded(evalue) as short:
            return show(etype, evalue, short, *args, **kwargs)

    printer.structured_traceback = structured_traceback
