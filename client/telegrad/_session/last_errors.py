"""Errors learned of when no line of the program can raise them any more, and its exit status. Knows no sessions.

Python gives a function that ``atexit`` calls no way to change the status, and to end the process there would keep other
functions from being called and files from being written. The status is changed at the last moment instead, when
everything of the interpreter is done and flushed (docs/errors.md).
"""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

_LAST_EVENT = "cpython.PyInterpreterState_Clear"
"""What audit hooks are told when modules are gone and standard output is flushed."""

_exit: Callable[[Any], NoReturn] | None = None
"""``sys.exit`` as it was before ``watch``."""
_given: Any = None
"""What the main thread has called ``sys.exit`` with."""
_is_arranged = False


def report(error: BaseException) -> None:
    """Print an error as Python prints an uncaught one, and let the program end with status 1.

    The traceback names the line whose operation failed, as far as it is known; telegrad's own frames are left out.
    """
    site = str(getattr(error, "site", ""))
    error.__traceback__ = _traceback_of(site, error) if site else None
    error.__suppress_context__ = True
    fail()
    hook = sys.excepthook
    try:
        hook(type(error), error, error.__traceback__)
    except Exception:
        sys.__excepthook__(type(error), error, error.__traceback__)


def _traceback_of(site: str, error: BaseException) -> TracebackType | None:
    """Return a traceback of one entry, for a site such as ``train.py:7 in main``; None for a notebook's cell."""
    place, _, function = site.rpartition(" in ")
    file, _, number = place.rpartition(":")
    if not number.isdecimal() or not int(number):
        return None
    line = linecache.getline(file, int(number)).rstrip()
    start = len(line) - len(line.lstrip())
    raising = ast.Raise(ast.Name("error", ast.Load()))
    for node in ast.walk(raising):
        if isinstance(node, (ast.stmt, ast.expr)):  # the whole line, so that no part of it is underlined
            node.lineno = node.end_lineno = int(number)
            node.col_offset, node.end_col_offset = len(line[:start].encode()), max(len(line.encode()), 1)
    code = compile(ast.Module([raising], []), file, "exec").replace(co_name=function, co_qualname=function)
    try:
        exec(code, {"error": error})  # noqa: S102 - it raises the error on a line of that number, and nothing else
    except BaseException as raised:
        return raised.__traceback__ and raised.__traceback__.tb_next
    return None


def watch() -> None:
    """Remember from now on which status the program asks for, so that ``fail`` leaves one that is not zero."""
    global _exit
    if _exit is None:
        _exit = sys.exit
        sys.exit = _exit_with
        _watch_quitter(type(vars(builtins).get("exit")))


def _watch_quitter(quitter: Any) -> None:
    """Remember the statuses that ``exit`` and ``quit`` are called with, where the module ``site`` has put them."""
    if quitter.__module__ == "_sitebuiltins":
        quit_with = quitter.__call__

        def call(self: Any, code: Any = None) -> None:
            note_status(code)
            quit_with(self, code)

        quitter.__call__ = call


def _exit_with(status: Any = None, /) -> NoReturn:
    """Exit the interpreter by raising SystemExit(status)."""
    note_status(status)
    raise SystemExit(status)


def note_status(status: Any) -> None:
    """Remember a status that the program asks for, if the main thread does."""
    global _given
    if threading.current_thread() is threading.main_thread():
        _given = status


def fail() -> None:
    """Let the status of this program, which is about to end, be 1, unless it fails with another one."""
    global _is_arranged
    if _is_arranged or _given not in (None, 0) or was_interrupted() or hasattr(sys, "ps1"):
        return
    _is_arranged = True
    sys.addaudithook(_exit_at(_LAST_EVENT, _process_exit()))


def was_interrupted() -> bool:
    """Tell whether Ctrl-C is what ends the program: then the status tells of it, and nothing is waited for."""
    return isinstance(getattr(sys, "last_value", None), KeyboardInterrupt) and not hasattr(sys, "ps1")


def _exit_at(last: str, end: Callable[[int], object]) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook that needs nothing of this module, whose names are gone when it is called."""

    def hook(event: str, _: tuple[Any, ...]) -> None:
        if event == last:
            end(1)

    return hook


def _process_exit() -> Callable[[int], object]:
    """Return C's ``exit``, which flushes and calls what libraries have registered, or what comes nearest to it.

    It keeps Python's lock, as the end of the interpreter does: no thread of the program goes on in what is taken apart.
    """
    try:
        import ctypes

        end: Callable[[int], object] = ctypes.PyDLL(None).exit
    except (ImportError, AttributeError, OSError):
        end = os._exit
    return end
