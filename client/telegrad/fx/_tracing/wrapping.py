"""``wrap``: functions of a program that tracing does not look into, but records as one call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from telegrad_protocol.errors import NotSupportedError

Wrapped = TypeVar("Wrapped", bound=str | Callable[..., Any])
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}
"""The globals in which a function that was wrapped is replaced while something is traced, by their id and its name."""


def wrap(fn_or_name: Wrapped) -> Wrapped:
    """Have calls of a function recorded as they are; it is given, or named, at the top level of its module.

    Raises NotImplementedError elsewhere.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotSupportedError("wrap must be called at the top level of a module")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    _wrapped_fns_to_patch[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


wrap.__module__ = "telegrad.fx._symbolic_trace"
