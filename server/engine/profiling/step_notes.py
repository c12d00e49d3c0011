"""What a profile says of the steps of an optimised program: each operation, or each kernel that several have become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from server.engine.operators import Operator
from server.engine.programs.executable import Executable, Part
from telegrad_protocol.meta import Device
from telegrad_protocol.tracing.recording import OPERATION

from .descriptions import Description, describe
from .stretch_notes import Row, StretchNotes

_LONGEST_NAME: Final = 100


def notes_of(executable: Executable) -> StretchNotes:
    """Return what a profile says of an executable's steps: what others have found out, or else what they are."""
    if executable.notes is None:
        parts, device = executable.parts, executable.device
        rows = [Row(_described(part, device), 0, None, step, step) for step, part in enumerate(parts)]
        executable.notes = StretchNotes(len(parts), rows)
    return executable.notes  # type: ignore[no-any-return]


def _described(part: Part, device: Device) -> Description:
    if len(part.operators) == 1:
        gpu = None if device.type == "cpu" else device
        return describe(part.operators[0], part.bound or (), gpu)
    return Description(OPERATION, name_of_kernel(part.operators), device=device.index or 0)


def name_of_kernel(operators: Sequence[Operator]) -> str:
    """Return the name of a kernel that several operations have become, each of which it names once."""
    names: dict[Any, None] = dict.fromkeys([operator.op.name for operator in operators])
    text = f"telegrad::fused_{'_'.join(names)}"
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 3]}..."
