"""Instructions about programs: sequences of instructions that the client sends once, and names from then on.

``programs`` says what is in their rows.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

from telegrad_protocol import messages

Row: TypeAlias = (
    messages.Call | messages.Free | messages.Upload | messages.Backward | messages.Gradient | messages.Mode
    | messages.SetRequiresGrad | messages.TakePlace | messages.RetainGrad | messages.SetGrad | messages.DropGrads
)  # fmt: skip
"""An instruction that a program may have, with slots in the place of ids."""

VERIFIES: Final = "verify_programs"
"""The mode in which a run is executed as one and as instructions, and what comes of both is compared."""


class DefineProgram(Struct, frozen=True, array_like=True, tag=49, gc=False):
    """Give a sequence of instructions the number ``program``, in place of what had it.

    ``inputs`` is how many tensors it takes from before it; ``rows`` are its instructions, with ``constants`` for the
    values in them that a run may change. Where it ``tunes``, the server measures ways to compute its products.
    """

    program: int
    inputs: int
    rows: list[Row]
    constants: list[Any]
    tunes: bool = False


class RunProgram(Struct, frozen=True, array_like=True, tag=50, gc=False):
    """Execute the instructions of a program, as if they stood here.

    What it makes gets ids from ``first`` on. Its inputs are those of its last run, but for ``moved`` and ``changed``:
    the positions in ``moved`` change between staying and moving, where an input that moves is as far from ``first`` as
    in the last run; ``changed`` are positions with the ids that they have from now on. ``constants`` are positions of
    constants with the values that they have from now on. What is ``freed`` has died before it, and is freed first.
    """

    program: int
    first: int
    changed: list[tuple[int, int]] = []
    moved: list[int] = []
    constants: list[tuple[int, Any]] = []
    freed: list[int] = []
