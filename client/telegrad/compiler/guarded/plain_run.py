"""What a call sent that ran as ever: calls that are watched are held against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from telegrad._session.parts.table import instructions_of
from telegrad_protocol import messages, wire
from telegrad_protocol.programs.rows import Flat

_ALLOWED: Final = frozenset((messages.Call, messages.Free, messages.Upload, messages.Mode))
"""What a program may have that makes tensors, and changes nothing that the client knows of."""


class ImpureError(Exception):
    """A call cannot be left out; the message says why."""


class PlainRun:
    """The instructions of a call, of which those after ``first`` were given out in it.

    ``count`` is how many numbers were given out, and ``left`` are those of the tensors that are left, less ``first``.
    Raises ImpureError where such a call cannot be left out.
    """

    def __init__(self, queued: list[Any], first: int, unfreed: Sequence[int] = ()) -> None:
        """Note entries of the queue; tensors that are ``unfreed`` have died, and are freed by what follows."""
        self.first = first
        self.instructions: list[Any] = instructions_of(queued)
        unknown = {one.__class__ for one in self.instructions} - _ALLOWED
        if unknown:
            raise ImpureError(f"it sends {min([kind.__name__ for kind in unknown])}")
        made = {id for one in self.instructions for id in _made_by(one)}
        freed = {id for one in self.instructions for id in _freed_by(one)}
        if not freed <= made:
            raise ImpureError("it frees a tensor that was there before")
        self.count = max(made, default=first) - first
        self.unfreed = [id - first for id in unfreed]
        self.left = {id - first for id in made - freed - {*unfreed}}
        if not {*unfreed} <= made:
            raise ImpureError("a tensor that was there before dies in it")

    @property
    def inputs(self) -> int:
        """How many tensors that were there before it takes."""
        return len(Flat(self.instructions, self.first).inputs)

    def inputs_of(self, queued: list[Any], first: int) -> list[int] | None:
        """Return the inputs of a call that sent the same, from other lines; None where it sent something else."""
        ours = _Calls(self.instructions, self.first)
        theirs = _Calls(instructions_of(queued), first)
        return theirs.inputs if ours.text == theirs.text else None


class _Calls:
    """What instructions compute, whatever the lines they come from and the moments at which tensors are freed."""

    def __init__(self, instructions: Sequence[Any], first: int) -> None:
        flat = Flat([_without_line(one) for one in instructions if one.__class__ is not messages.Free], first)
        self.inputs = flat.inputs
        self.text = wire.encoder.encode([flat.rows, flat.constants, len(flat.inputs)])


def _without_line(one: Any) -> Any:
    if one.__class__ is messages.Call:
        return messages.Call(one.op, 0, one.outs, one.args)
    if one.__class__ is messages.Upload:
        return messages.Upload(one.id, 0, one.dtype, one.shape, one.device, one.data)
    return one


def _made_by(one: Any) -> Sequence[int]:
    if one.__class__ is messages.Call:
        return one.outs
    return (one.id,) if one.__class__ is messages.Upload else ()


def _freed_by(one: Any) -> Sequence[int]:
    if one.__class__ is messages.Call:
        return one.freed
    return one.ids if one.__class__ is messages.Free else ()
