"""Classes of tensors that answer operations themselves: who is asked where an operand is one of these.

Knows none of them: a class enters itself with its first import. Operations on other tensors never look here once the
pattern of their call is cached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError

Handler = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operation, given its public name and arguments."""


class MethodName(str):
    """The public name of a function that was called as a method of ``Tensor``."""


HANDLERS: dict[type, Handler] = {}
OVERRIDING: set[type] = set()
"""Those classes of ``HANDLERS`` that override operations by ``__torch_function__``, which a thread can disable."""
DISPATCHING: set[type] = set()
"""Classes that answer operations below autograd, by ``__torch_dispatch__``."""
_by_name: dict[str, dict[tuple[Any, ...], Any]] = {}
PATTERNS: list[dict[Any, Any]] = []
"""What every function keeps of how it was called; emptied where a mode begins, so that the mode is asked."""


def patterns_of(public: str) -> dict[tuple[Any, ...], Any]:
    """Return the patterns that are kept of calls of a function, by the types of arguments and the names of keywords."""
    patterns = _by_name.get(public)
    if patterns is None:
        patterns = _by_name[public] = {}
        PATTERNS.append(patterns)
    return patterns


class _Overrides(threading.local):
    """What a thread says of overrides: the modes that it has entered, and whether classes are asked.

    ``modes`` answer functions, ``dispatch_modes`` what is below autograd; ``ignores_dispatch`` disables these and the
    classes of ``DISPATCHING``. ``skips_next`` has the next function of Python's ask nobody.
    """

    modes: tuple[Any, ...] = ()
    dispatch_modes: tuple[Any, ...] = ()
    are_disabled = False
    skips_next = False
    ignores_dispatch = False
    dispatch_handler: Handler | None = None
    mode_handler: Handler | None = None
    class_handler: Handler | None = None
    class_entered: Callable[[], None]
    """Is called when a class that is no tensor has been entered as one that answers functions."""
    shape_handler: Handler | None = None
    like_operand: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
    """Gives a function that makes a tensor like its first argument, on a device, that argument where it can use it."""


overrides = _Overrides()
modes_entered: set[int] = set()
"""Numbers of the modes that any thread has entered; while there are any, functions keep no patterns."""


@contextmanager
def without_modes() -> Iterator[None]:
    """Leave all modes that stand below autograd in this block."""
    before, overrides.dispatch_modes = overrides.dispatch_modes, ()
    try:
        yield
    finally:
        overrides.dispatch_modes = before


def is_handled(kind: type) -> bool:
    """Whether a class answers operations itself in this thread."""
    if kind in DISPATCHING and not overrides.ignores_dispatch:
        return True
    return kind in HANDLERS and not (overrides.are_disabled and kind in OVERRIDING)


def _answers_functions(kind: type) -> bool:
    return kind in HANDLERS and not (overrides.are_disabled and kind in OVERRIDING)


class OperandHasHandler(ArgumentTypeError):
    """A call's cached pattern does not fit, since a list among its arguments holds a tensor of such a class."""


def handler_of(values: Iterable[Any]) -> Handler | None:
    """Return who answers a call with these arguments; None if all operands are ordinary."""
    if overrides.modes:
        return overrides.mode_handler
    if HANDLERS:
        for value in values:
            kind = value.__class__
            if _answers_functions(kind):
                return HANDLERS[kind]
            if kind is list or kind is tuple:
                handler = next((HANDLERS[i.__class__] for i in value if _answers_functions(i.__class__)), None)
                if handler is not None:
                    return handler
    if overrides.dispatch_modes or DISPATCHING:
        return _dispatch_handler_of(values)
    return None


def _dispatch_handler_of(values: Iterable[Any]) -> Handler | None:
    if overrides.ignores_dispatch:
        return None
    if overrides.dispatch_modes:
        return overrides.dispatch_handler
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if item.__class__ in DISPATCHING:
                return overrides.dispatch_handler
    return None


def unknown_handler_of(values: Iterable[Any]) -> Handler | None:
    """Enter the classes of arguments that are no tensors and override operations; return who answers such a call.

    It may also be one with operands of which only some have elements.
    """
    if overrides.shape_handler is not None and _is_partly_shapes(values):
        return overrides.shape_handler
    if overrides.are_disabled or overrides.class_handler is None:
        return None
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if _is_unknown(item):
                HANDLERS[type(item)] = overrides.class_handler
                OVERRIDING.add(type(item))
                overrides.class_entered()
                return overrides.class_handler
    return None


def _is_partly_shapes(values: Iterable[Any]) -> bool:
    """Whether tensors without elements and others are among arguments."""
    kinds = set()
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Tensor):
                kinds.add(isinstance(item._session, ShapeSession))
    return len(kinds) > 1


def _is_unknown(item: Any) -> bool:
    is_known = isinstance(item, (Tensor, type)) or type(item) in HANDLERS
    return not is_known and hasattr(type(item), "__torch_function__")
