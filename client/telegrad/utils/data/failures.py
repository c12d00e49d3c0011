"""Errors of a pass over data: kept until the program asks for the batch that failed, which does not end the pass."""

from __future__ import annotations

import traceback
from typing import Any


class FailedBatch:
    """Stands for a batch that could not be put together; ``error`` is what the program is told."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _KeyErrorMessage(str):
    """A text that Python shows as it is where a KeyError has it; it would show other texts in quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def of_worker(error: BaseException, number: int) -> BaseException:
    """Return an error of the same class that tells which worker has failed, and where; others as they are.

    It is a RuntimeError where the class is not made of a text.
    """
    if not isinstance(error, Exception):
        return error
    told = "".join(traceback.format_exception(error))
    text = f"Caught {type(error).__name__} in DataLoader worker process {number}.\nOriginal {told}"
    kind: Any = type(error)
    try:
        if kind is KeyError:
            return KeyError(_KeyErrorMessage(text))
        made = kind(text)
    except Exception:
        try:
            made = kind(message=text)
        except Exception:
            return RuntimeError(text)
    return made if isinstance(made, Exception) else RuntimeError(text)
