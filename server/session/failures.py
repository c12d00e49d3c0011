"""Failures of instructions, as messages: which error, of which operation, caused by which line of the client."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

import msgspec

from telegrad_protocol import messages
from telegrad_protocol.errors import InternalError, OutOfMemoryError, TelegradError


class Absent:
    """Stands for a result that was never computed."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def known(error: Exception, operation: str) -> TelegradError:
    """``error`` as one of ours; what we did not foresee is a defect of the server and says so."""
    if isinstance(error, TelegradError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"{operation}: out of memory on the server's host: {error}")
    return InternalError(f"{operation}: {type(error).__name__}: {error}")


def describe(
    number: int, error: Exception, *, request: int | None, operation: str, operands: str, site: str
) -> messages.Failure:
    """The message of an error."""
    found = known(error, operation)
    lines = "".join(traceback.format_exception(error))
    return messages.Failure(number, request, found.code, found.message, operation, operands, site, lines)


def for_request(failure: messages.Failure, request: int) -> messages.Failure:
    """The failure that a skipped request is answered with."""
    return msgspec.structs.replace(failure, request=request)


def results_of(instruction: Any) -> Iterable[int]:
    """Ids that an instruction would have defined."""
    if isinstance(instruction, messages.Upload):
        return (instruction.id,)
    if isinstance(instruction, messages.Backward):
        return [grad for _, grad in instruction.leaves]
    outs = getattr(instruction, "outs", ())
    return [id for id in outs if id is not None]
