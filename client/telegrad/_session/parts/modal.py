"""Modes between instructions: each is queued under the modes of the thread that queued it, and the server is told."""

from __future__ import annotations

from typing import Any, Final

from telegrad._session.thread_modes import DEFAULT, Modes
from telegrad_protocol import messages
from telegrad_protocol.programs.messages import RunProgram

MODAL: Final[frozenset[type]] = frozenset(
    (
        messages.Call, messages.Backward, messages.Gradient, messages.Upload, messages.Read, messages.BeginPass,
        messages.GiveGradients, messages.EndPass, messages.TakeGradients, messages.ClientNode, messages.Watch,
        messages.LoadModule, messages.DefineKernel, messages.SetKernelAttribute, messages.LaunchKernel,
        messages.CallExtension, messages.BeginCapture, messages.EndCapture, messages.ReplayGraph, RunProgram,
    )
)  # fmt: skip
"""Instructions whose effect depends on the modes of the thread that queued them."""
STOPPABLE: Final[frozenset[type]] = frozenset(
    (
        messages.Describe, messages.Query, messages.Seed, messages.RandomState, messages.RecordEvent,
        messages.WaitEvent, messages.RecordStream,
    )
)  # fmt: skip
"""Instructions that run under any modes, but are skipped after a failure of the thread that queued them."""


def with_modes(queued: list[Any], told: Modes) -> tuple[list[Any], Modes]:
    """Return a batch of the queued instructions with changes of mode put between them, and the modes at its end."""
    batch: list[Any] = []
    for item in queued:
        if type(item) is tuple:
            modes, instruction = item
        else:
            modes, instruction = DEFAULT, item
        if modes is not told and (
            (kind := type(instruction)) in MODAL or (modes.thread != told.thread and kind in STOPPABLE)
        ):
            batch.extend(modes.changes_from(told))
            told = modes
        batch.append(instruction)
    return batch, told
