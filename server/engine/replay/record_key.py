"""The Record key's kernel: it runs an operation below its key, and tells the context's recorder of it.

What a kernel calls is a part of its operation, and not told apart from it.
"""

from __future__ import annotations

from typing import Any

from server.engine import context, keys
from server.engine.context import Context, Recorder
from server.engine.dispatcher import BOXED, redispatch
from server.engine.operators import Operator
from server.engine.plan import run_backend

_BELOW = keys.below(keys.RECORD)


def _record(operator: Operator, args: tuple[Any, ...], signature: tuple[Any, ...], key_set: int) -> Any:
    lower, current = key_set & _BELOW, context.current
    if current.recorder is not None:
        current.recorder.note_beginning(operator, args)
    current.included &= ~keys.RECORD
    try:
        result = redispatch(operator, args, signature, lower)
    finally:
        current.included |= keys.RECORD
    recorder = current.recorder
    if recorder is not None and operator.resolved[lower] is run_backend:
        recorder.note_operation(operator, args, signature, result)
    elif recorder is not None:
        recorder.note_other(operator.op.public)
    return result


BOXED[keys.RECORD] = _record


def start(current: Context, recorder: Recorder) -> Recorder | None:
    """Tell a recorder of operations from here on; returns the one that was told before."""
    before, current.recorder = current.recorder, recorder
    current.included |= keys.RECORD
    return before


def stop(current: Context, before: Recorder | None) -> None:
    """Tell the recorder that was told before, if there was one."""
    current.recorder = before
    if before is None:
        current.included &= ~keys.RECORD
