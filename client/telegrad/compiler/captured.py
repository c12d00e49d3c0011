"""What ends a program and is a part of PyTorch's graph all the same, so that ``fullgraph=True`` permits it.

PyTorch has operators of a program's own in one graph, whatever their kernels read, ``cond``, ``while_loop`` and
derivatives of functions (``torch.func``), for which telegrad asks which gradients there are, and large arrays;
with ``fullgraph=True`` results whose shape depends on elements, numbers of tensors and NumPy's functions, too.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import telegrad._library
from telegrad._functions import reading
from telegrad._session.own_code import is_own
from telegrad_protocol import messages

from . import control_flow

_OPERATORS: Final = str(Path(telegrad._library.__file__).parent)
"""Calls of operators that a program has registered pass frames of this folder."""
_DECIDING: Final = frozenset({control_flow.is_true.__code__})
_NUMBERS: Final = frozenset({reading.METHODS[name].__code__ for name in ("item", "numpy")})
_TRUTH: Final[CodeType] = reading.METHODS["__bool__"].__code__
_ASKING: Final = frozenset({"TO_BOOL", "POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "NOT_TAKEN", "CACHE"})
_RAISING: Final = frozenset({"LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT"})
"""What follows in the bytecode of an ``assert`` statement on the test, and where the test fails."""


def is_captured(why: Any, frame: FrameType | None, outermost: FrameType | None, in_full_graph: bool) -> bool:
    """Return whether PyTorch has in one graph what an instruction waits for.

    ``frame`` is the innermost frame, ``outermost`` that of the compiled call. In a full graph a number that is read is
    permitted, and a tensor that Python's ``if`` asks is not.
    """
    is_question = isinstance(why, messages.Query) and why.what == "computed"
    if is_question or isinstance(why, messages.Upload) or (in_full_graph and isinstance(why, messages.Describe)):
        return True
    own: set[CodeType] = set(_own_code(frame))
    if own & _DECIDING or (in_full_graph and own & _NUMBERS and (_TRUTH not in own or _is_asserted(frame))):
        return True
    return any(code.co_filename.startswith(_OPERATORS) for code in _code_until(frame, outermost))


def _is_asserted(frame: FrameType | None) -> bool:
    """Return whether the program's innermost line asks in an ``assert`` statement, and raises where it is not so."""
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return False
    last = frame.f_lasti
    behind = (one.opname for one in dis.get_instructions(frame.f_code) if one.offset >= last)
    return next((name for name in behind if name not in _ASKING), "") in _RAISING


def _code_until(frame: FrameType | None, outermost: FrameType | None) -> Iterator[CodeType]:
    while frame is not None and frame is not outermost:
        yield frame.f_code
        frame = frame.f_back


def _own_code(frame: FrameType | None) -> Iterator[CodeType]:
    """Give telegrad's code that the program's innermost line has called."""
    for code in _code_until(frame, None):
        if not is_own(code.co_filename):
            return
        yield code
