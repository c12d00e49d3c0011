"""What ends a program and is a part of PyTorch's graph all the same, so that ``fullgraph=True`` permits it.

PyTorch has operators of a program's own in one graph, whatever their kernels read, ``cond``, ``while_loop`` and
derivatives of functions (``torch.func``), for which telegrad asks which gradients there are, and large arrays;
with ``fullgraph=True`` results whose shape depends on elements, numbers of tensors and NumPy's functions, too, and
Python's ``max`` and ``min`` of tensors, ``in``, tensors made of tensors, and what distributions check.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import telegrad._library
from telegrad._functions import creation, operators, reading
from telegrad._functions.numeric import statistics
from telegrad._ops import tensor_numbers
from telegrad._session.own_code import is_own
from telegrad_protocol import messages
from telegrad_protocol.dtypes import bool_

from . import control_flow

_OPERATORS: Final = str(Path(telegrad._library.__file__).parent)
"""Calls of operators that a program has registered pass frames of this folder."""
_DISTRIBUTIONS: Final = str(Path(_OPERATORS).with_name("distributions"))
_DECIDING: Final = frozenset({control_flow.is_true.__code__})
_NUMBERS: Final = frozenset({reading.METHODS[name].__code__ for name in ("item", "numpy")})
_READING: Final[frozenset[CodeType]] = frozenset(
    one.__code__
    for one in (creation.tensor, operators.METHODS["__contains__"], statistics.histc, tensor_numbers.read_numbers)
)
"""Functions that read elements of what they are given, where PyTorch's have an operation."""
_TRUTH: Final[CodeType] = reading.METHODS["__bool__"].__code__
_LISTS: Final[CodeType] = reading.METHODS["tolist"].__code__
_EXTREMES: Final = frozenset({"max", "min"})
_ASKING: Final = frozenset({"TO_BOOL", "POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "NOT_TAKEN", "CACHE"})
_RAISING: Final = frozenset({"LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT"})
"""What follows in the bytecode of an ``assert`` statement on the test, and where the test fails."""


def is_captured(why: Any, frame: FrameType | None, outermost: FrameType | None, in_full_graph: bool) -> bool:
    """Return whether PyTorch has in one graph what an instruction waits for.

    ``frame`` is the innermost frame, ``outermost`` that of the compiled call. In a full graph a number that is read is
    permitted, and a tensor that Python's ``if`` asks is not.
    """
    is_question = isinstance(why, messages.Query) and why.what in ("computed", "version")
    if is_question or isinstance(why, messages.Upload) or (in_full_graph and isinstance(why, messages.Describe)):
        return True
    own: set[CodeType] = set(_own_code(frame))
    if own & _DECIDING or (in_full_graph and (_is_number(own, frame) or _is_of_operation(own) or _are_integers(frame))):
        return True
    return any(code.co_filename.startswith(_OPERATORS) for code in _code_until(frame, outermost))


def heading_of(reason: str, why: Any, frame: FrameType | None) -> str:
    """Return PyTorch's words for the kind of a graph break: the first line of its message."""
    for begin, heading in _HEADINGS.items():
        if begin in reason:
            return heading
    own = set(_own_code(frame)) if isinstance(why, messages.Read) else set()
    if _TRUTH in own:
        return "Data-dependent branching"
    return "Tensor.tolist() with non-integer tensor" if _LISTS in own else ""


_HEADINGS: Final = {
    "graph_break() was called": "Call to `torch._dynamo.graph_break()`",
    "is not to be compiled": "Skip calling `torch.compiler.disable()`d function",
    "print": "Failed to trace builtin operator",
}
"""PyTorch's words for a kind of graph break, by what telegrad's reason for it has in it."""


def _is_number(own: set[CodeType], frame: FrameType | None) -> bool:
    """Return whether a number or an array is read, or a truth that PyTorch has in one graph."""
    if not own & _NUMBERS:
        return False
    return _TRUTH not in own or _is_asserted(frame) or _is_extreme(frame)


def _is_of_operation(own: set[CodeType]) -> bool:
    """Return whether a function of telegrad's reads elements for itself, where PyTorch's is an operation."""
    return bool(own & _READING) or any(code.co_filename.startswith(_DISTRIBUTIONS) for code in own)


def _are_integers(frame: FrameType | None) -> bool:
    """Return whether a list of integers is made of a tensor."""
    while frame is not None and is_own(frame.f_code.co_filename):
        if frame.f_code is _LISTS:
            dtype = frame.f_locals["self"].dtype
            return not (dtype.is_floating_point or dtype.is_complex or dtype is bool_)
        frame = frame.f_back
    return False


def _program_of(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the program's innermost line."""
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _is_asserted(frame: FrameType | None) -> bool:
    """Return whether the program's innermost line asks in an ``assert`` statement, and raises where it is not so."""
    program = _program_of(frame)
    if program is None:
        return False
    last = program.f_lasti
    behind = (one.opname for one in dis.get_instructions(program.f_code) if one.offset >= last)
    return next((name for name in behind if name not in _ASKING), "") in _RAISING


def _is_extreme(frame: FrameType | None) -> bool:
    """Return whether the program's innermost line calls Python's ``max`` or ``min``: the call begins with the name."""
    program = _program_of(frame)
    if program is None:
        return False
    *before, call = takewhile(lambda one: one.offset <= program.f_lasti, dis.get_instructions(program.f_code))
    begin = _begin_of(call)
    names = [one.argval for one in before if begin is not None and _begin_of(one) == begin and "LOAD_" in one.opname]
    return bool(names) and names[0] in _EXTREMES


def _begin_of(instruction: dis.Instruction) -> tuple[int, int] | None:
    """Return the line and column that the source of an instruction begins at, where Python knows them."""
    place = instruction.positions
    if place is None or place.lineno is None or place.col_offset is None:
        return None
    return place.lineno, place.col_offset


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
