"""What a call sent that ran as ever: calls that are watched are held against it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from telegrad._ops.late_errors import may_fail
from telegrad._session.parts.table import instructions_of
from telegrad_protocol import messages, wire
from telegrad_protocol.ops import TABLE
from telegrad_protocol.programs.rates import rate_of
from telegrad_protocol.programs.rows import Flat

_ALLOWED: Final = frozenset((messages.Call, messages.Free, messages.Upload, messages.Mode))
"""What a program may have that makes tensors, and changes nothing that the client knows of."""
_OF_STEPS: Final = frozenset((messages.Backward, messages.DropGrads, messages.SetGrad))
"""What changes gradients besides."""


_MARK: Final = object()
_BY_INDEX: Final = {op.index: op for op in TABLE.values()}
_rate_position: Final = cache(lambda index: rate_of(_BY_INDEX[index]))


class ImpureError(Exception):
    """A call cannot be left out; the message says why."""


class PlainRun:
    """The instructions of a call, of which those after ``first`` were given out in it.

    ``count`` is how many numbers were given out, and ``left`` are those of the tensors that are left, less ``first``.
    Raises ImpureError where such a call cannot be left out.
    """

    def __init__(
        self, queued: list[Any], first: int, unfreed: Sequence[int] = (), may_step: bool = False
    ) -> None:  # fmt: skip
        """Note entries of the queue; tensors that are ``unfreed`` have died, and are freed by what follows.

        Only a run that ``may_step`` may change gradients.
        """
        self.first = first
        self.instructions: list[Any] = instructions_of(queued)
        kinds = {one.__class__ for one in self.instructions}
        unknown = kinds - _ALLOWED - (_OF_STEPS if may_step else frozenset())
        if unknown:
            raise ImpureError(f"it sends {min([kind.__name__ for kind in unknown])}")
        self.steps = not kinds.isdisjoint(_OF_STEPS)
        """Whether it changes gradients."""
        self.may_fail = any(
            [may_fail(_BY_INDEX[one.op]) for one in self.instructions if one.__class__ is messages.Call]
        )
        """Whether it fails for what elements are, which is to be known where the program would catch that."""
        made = {id for one in self.instructions for id in _made_by(one) if id > first}
        freed = [id for one in self.instructions for id in _freed_by(one)]
        self._freed = [id for id in freed if id not in made]
        """What it frees of what was there before, in order."""
        if self._freed and not self.steps:
            raise ImpureError("it frees a tensor that was there before")
        self.count = max(made, default=first) - first
        self.unfreed = [id - first for id in unfreed]
        self.left = {id - first for id in made.difference(freed, unfreed)}
        if not {*unfreed} <= made:
            raise ImpureError("a tensor that was there before dies in it")

    @property
    def text(self) -> bytes:
        """What it computes, with its constants; equal for calls that sent the same."""
        return _Calls(self.instructions, self.first).text

    @property
    def inputs(self) -> int:
        """How many tensors that were there before it takes."""
        return len(Flat(self.instructions, self.first).inputs)

    def inputs_of(self, queued: list[Any], first: int, dropped: Sequence[int] = ()) -> list[int] | None:
        """Return the inputs of a call that sent the same, from other lines; None where it sent something else.

        ``dropped`` are the gradients that it has dropped, in order: those that were there before are freed so.
        """
        ours = _Calls(self.instructions, self.first)
        theirs = _Calls(instructions_of(queued), first)
        if ours.text != theirs.text or len(dropped) != len(self._freed):
            return None
        known = dict(zip(self._freed, dropped, strict=True))
        for our_id, their_id in zip(ours.inputs, theirs.inputs, strict=True):
            if known.setdefault(our_id, their_id) != their_id:
                return None
        return [known[id] for id in Flat(self.instructions, self.first).inputs]

    def rates(self) -> list[int | None]:
        """Return where learning rates stand among the constants, by update of an optimizer; None for tensors."""
        marked = [_with_rate(one, _MARK) for one in self.instructions]
        places = iter([place for place, one in enumerate(Flat(marked, self.first).constants) if one is _MARK])
        updates = [one for one in marked if one.__class__ is messages.Call and _rate_position(one.op) is not None]
        return [next(places) if any([arg is _MARK for arg in one.args]) else None for one in updates]


class _Calls:
    """What instructions compute, whatever the lines they come from and the moments at which tensors are freed."""

    def __init__(self, instructions: Sequence[Any], first: int) -> None:
        flat = Flat([_without_line(one) for one in instructions if one.__class__ is not messages.Free], first)
        self.inputs = flat.inputs
        self.text = wire.encoder.encode([flat.rows, flat.constants, len(flat.inputs)])


def _without_line(one: Any) -> Any:
    if one.__class__ is messages.Call:
        return messages.Call(one.op, 0, one.outs, _with_rate(one, 0.0).args)
    if one.__class__ is messages.Backward:
        return messages.Backward(
            0, one.roots, one.gradients, one.leaves, one.retain_graph, one.create_graph, one.restricted
        )
    if one.__class__ is messages.Upload:
        return messages.Upload(one.id, 0, one.dtype, one.shape, one.device, one.data)
    return one


def _with_rate(one: Any, rate: Any) -> Any:
    """Return an instruction with another learning rate, where it has one that is a number."""
    position = _rate_position(one.op) if one.__class__ is messages.Call else None
    if position is None or not is_float(one.args[position]):
        return one
    args = [*one.args[:position], rate, *one.args[position + 1 :]]
    return messages.Call(one.op, one.site, one.outs, args, one.freed)


def is_float(argument: Any) -> bool:
    """Whether an argument of a call is a float, alone or in a list."""
    is_one = argument.__class__ is list and len(argument) == 1
    return (argument[0] if is_one else argument).__class__ is float


def _made_by(one: Any) -> Sequence[int]:
    if one.__class__ is messages.Call:
        return one.outs
    if one.__class__ is messages.Backward:
        return [gradient for _, gradient in one.leaves]
    return (one.id,) if one.__class__ is messages.Upload else ()


def _freed_by(one: Any) -> Sequence[int]:
    if one.__class__ is messages.Call:
        return one.freed
    return one.ids if one.__class__ is messages.Free else ()
