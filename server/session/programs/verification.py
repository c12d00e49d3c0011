"""Comparing what is executed as one with its instructions: one run is made on copies, the other one as ever.

The instructions' results are those that stay. Random numbers are the same for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from server.engine import functional as F
from server.engine import keys
from server.engine.operators import BY_INDEX
from server.engine.value import Storage, Value, memory_of
from server.session.state import SessionState
from telegrad_protocol import messages
from telegrad_protocol.dtypes import float32, uint8
from telegrad_protocol.errors import ProgramMismatchError
from telegrad_protocol.meta import Meta

from .compiled import Given, Result, Variant
from .ending import EndOfVerification

_HALF_TOLERANCE, _GPU_TOLERANCE = 2e-2, 1e-4
"""Relative to the largest element: chains in half precision are rounded once, and GPUs contract products and sums."""


_REMEDY: Final = "compile the function without verify, or not at all, and report what it does"


class _Difference(NamedTuple):
    """Where results differ: the position of the instruction, and how."""

    position: int
    text: str


def begin_verification(state: SessionState, program: Any, variant: Variant, values: list[Any], ids: list[int]) -> bool:
    """Execute a run as one on copies, and have its instructions be next, whose results are compared.

    Returns False, and does nothing, where indices are out of range.
    """
    taken = variant.taken(values, program.template)
    if taken is None:
        return False
    copies = copies_of(taken)
    generators = state.context.generators
    before = {device: generator.get_state() for device, generator in generators.items()}
    with state.context.below_autocast():
        execution = variant.plain.begin(copies)
        execution.advance()
    for device, generator in generators.items():
        generator.set_state(before[device])
    instructions = program.template.instructions(ids)
    changed = [(given, copy) for given, copy in zip(variant.takes.given, copies) if isinstance(given, Given)]
    end = EndOfVerification(variant, values, ids, instructions, execution.outputs(), changed, state.failures)
    state.inbox.extendleft(reversed([*instructions, end]))
    return True


def copies_of(taken: Sequence[Any]) -> list[Any]:
    """Return values over copies of the memory of these, which share memory where these do."""
    copied: dict[int, Storage] = {}
    copies: list[Any] = []
    for value in taken:
        if value.__class__ is not Value:
            copies.append(value)
            continue
        owner = memory_of(value.storage)
        if id(owner) not in copied:
            whole = Value(owner, Meta.of((owner.nbytes,), uint8, value.device), value.backend)
            copied[id(owner)] = F.clone(whole).storage
        copies.append(Value(copied[id(owner)], value.meta, value.backend))
    return copies


def end_verification(state: SessionState, end: EndOfVerification) -> None:
    """Handle the end of such a run: fail at the first instruction whose results differ."""
    if state.failures > end.failures or state.interrupt:
        return
    with state.context.below_autocast():
        first = min(_differences(state, end), default=None)
    if first is not None:
        culprit = end.instructions[first.position]
        state.fail(culprit, ProgramMismatchError(f"{_name_of(culprit)}: {first.text}; {_REMEDY}"))


def _differences(state: SessionState, end: EndOfVerification) -> Iterator[_Difference]:
    variant: Variant = end.variant
    is_rough = _has_half_precision(variant)
    for slot, outcome in variant.names:
        if isinstance(outcome, Result):
            text = _difference(state.values.get(end.ids[slot]), end.outputs[outcome.output], is_rough)
            if text:
                yield _Difference(_maker_of(end.ids[slot], end.instructions), text)
    passes = [p for p, one in enumerate(end.instructions) if isinstance(one, (messages.Backward, messages.Gradient))]
    for place, outcome in variant.gradients:
        if isinstance(outcome, Result):
            text = _difference(end.values[place].autograd.grad, end.outputs[outcome.output], is_rough)
            if text:
                yield _Difference(passes[-1] if passes else 0, f"the gradient of an input: {text}")
    for given, copy in end.changed:
        value = end.values[given.place]
        text = "" if given.is_gradient else _difference(value, copy, is_rough)
        if text:
            yield _Difference(_writer_of(value, state, end.instructions), f"an input that is modified: {text}")


def _maker_of(id: int, instructions: Sequence[Any]) -> int:
    """Return the position of the instruction that makes what has this number, 0 where none says so."""
    return next((p for p, one in enumerate(instructions) if id in _made_by(one)), 0)


def _made_by(instruction: Any) -> Sequence[int | None]:
    if isinstance(instruction, messages.Backward):
        return [gradient for _, gradient in instruction.leaves]
    return [instruction.id] if isinstance(instruction, messages.Upload) else getattr(instruction, "outs", ())


def _writer_of(value: Value, state: SessionState, instructions: Sequence[Any]) -> int:
    """Return the position of the last instruction that names a value as what it modifies, 0 where none does."""
    for position in range(len(instructions) - 1, -1, -1):
        one = instructions[position]
        if one.__class__ is messages.Call:
            for target in BY_INDEX[one.op].op.mutates:
                named = one.args[target] if isinstance(one.args[target], list) else [one.args[target]]
                if any([state.values.get(id) is value for id in named if id.__class__ is int]):
                    return position
    return 0


def _has_half_precision(variant: Variant) -> bool:
    """Whether a run computes in half precision, which what it makes of other types may come from."""
    return "float16" in variant.description.text


def _difference(value: Any, other: Value, is_rough: bool) -> str:
    """Say in what two values differ; empty where they are the same, or roughly so if they come from half precision."""
    if value.__class__ is not Value:
        return f"it is {other.meta} where it is executed as one, and nothing as instructions"
    if value.meta != other.meta:
        return f"it is {other.meta} where it is executed as one, and {value.meta} as instructions"
    dtype = value.meta.dtype
    is_half = dtype.is_floating_point and dtype.itemsize == 2
    tolerance = _HALF_TOLERANCE if is_rough else _GPU_TOLERANCE if value.keys & keys.CUDA else 0.0
    a, b = [_elements(one, is_half) for one in (value, other)]
    if np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        return ""
    if a.dtype.kind not in "fc":
        return f"{int((a != b).sum())} of {a.size} elements of {value.meta} differ"
    with np.errstate(invalid="ignore"):
        distances = np.abs(a.astype(np.complex128) - b.astype(np.complex128))
        distances = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, distances)
    largest = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    if bool((distances <= tolerance * largest).all()):
        return ""
    return (
        f"{int((distances != 0).sum())} of {a.size} elements of {value.meta} differ, by {float(distances.max()):.3g} "
        f"at most, the largest being {largest:.3g}"
    )


def _elements(value: Value, is_half: bool) -> np.ndarray[Any, Any]:
    plain = value.alias()
    return plain.backend.host_array(F._to_copy(plain, dtype=float32) if is_half else F.clone(plain))


def _name_of(instruction: Any) -> str:
    if instruction.__class__ is messages.Call:
        return BY_INDEX[instruction.op].op.public
    return "backward" if isinstance(instruction, (messages.Backward, messages.Gradient)) else "compile"
