"""Operations that consist of others: these are run on the batched operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._dispatch import programs
from telegrad._session.thread_modes import thread
from telegrad_protocol.ops import Op


def run(op: Op, bound: Sequence[Any]) -> Any:
    """Return what the operations give that ``op`` consists of; None where it is one of its own.

    The server is asked what these are, once for operands of such shapes and types.
    """
    if op.form != "functional" or op.index not in programs.composites():
        return None
    template, tensors = programs.template_of(bound)
    tracked = [thread.modes.records and tensor._is_tracked() for tensor in tensors]
    program = programs.expansion(op, template, [tensor._meta for tensor in tensors], tracked)
    results = programs.run(program, dict(enumerate(tensors)))
    return results[0] if len(results) == 1 and not op.returns else tuple(results)
