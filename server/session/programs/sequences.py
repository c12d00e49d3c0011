"""A session's programs: sequences of instructions that it was told once, and executes by their numbers.

A run is put into the stream as the instructions that it stands for, so that whatever holds for instructions holds for
these: turns, failures, what is undone. What was executed twice in the same situation is recorded, and executed as one
from then on (``compiled``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final
from weakref import ReferenceType, ref

from server.engine import keys
from server.engine.in_c.runs import bind_pairs
from server.engine.operators import BY_INDEX
from server.engine.value import Value
from server.session.call_cache import free_before
from server.session.state import SessionState
from server.session.tensors import forget
from telegrad_protocol import messages
from telegrad_protocol.errors import OutOfMemoryError, ProtocolError, TelegradError
from telegrad_protocol.programs.messages import DefineProgram, RunProgram

from .compiled import Variant
from .ending import EndOfRun, EndOfVerification, RestOfRun
from .known import Program, weight_of
from .noted_executions import begun
from .recording import Recording
from .successions import end_successions
from .verification import begin_verification, end_verification

_log = logging.getLogger(__name__)
MOST_PROGRAMS: Final = 1 << 10
_STEP_BYTES: Final = 3000
"""What the host holds for an operation of what is executed as one."""
most_session_variants = 256
"""A session's programs in so many together; those of the program that ran longest ago go. Set when a worker starts."""
_VERIFIED: Final = object()


def define_program(state: SessionState, definition: DefineProgram) -> None:
    """Handle the instruction."""
    if len(state.programs) >= MOST_PROGRAMS and definition.program not in state.programs:
        raise ProtocolError(f"define program: a session has at most {MOST_PROGRAMS} programs")
    state.host_memory.check_room(weight_of(definition))
    state.programs[definition.program] = Program(definition)


def run_program(state: SessionState, run: RunProgram) -> int:
    """Handle the instruction: execute what it stands for, or have that be next; return what the turn is to count."""
    if run.freed:
        free_before(state, run)
    program: Program | None = state.programs.get(run.program)
    if program is None:
        if state.is_stopped:  # its definition was what failed
            return 0
        raise ProtocolError(f"run program: there is no program number {run.program}")
    ids = program.ids(run)
    program.last_run = state.operations
    if program.is_recordable and not state.is_stopped:
        values = program.values(state.values, ids)
        described = program.standing.of(state, values, program.has_passes)
        if described is not None:
            variant = program.variant(described)
            executed = None if variant is None else _execute(state, RestOfRun(program, variant, values, ids, None))
            if executed is not None:
                return executed
            met = described, program.fixed
            if program.is_worth_recording(met):
                before = named_before(state, ids[: program.inputs])
                instructions = program.template.instructions(ids)
                end = EndOfRun(program, met, Recording(state, values, instructions, program.tunes), ids, before)
                state.inbox.extendleft(reversed([*instructions, end]))
                return 0
    state.inbox.extendleft(reversed(program.template.instructions(ids)))
    return 0


def end_run(state: SessionState, end: EndOfRun) -> None:
    """Handle the end of a run that was recorded: keep what came of it."""
    program, recording, ids = end.program, end.recording, end.ids
    recording.stop()
    if recording.has_failed:
        return
    names = names_after(state, ids, end.before)
    nbytes = len(recording.recorder) * _STEP_BYTES
    try:
        state.host_memory.note(nbytes)
    except OutOfMemoryError:  # it goes on as instructions
        return
    variant = _variant(recording, names)
    if variant is None:
        program.reasons[end.situation] = recording.recorder.reason
    else:
        used = set(program.used)
        released = [slot for slot, value in names if value is None and slot >= 0 and slot not in used]
        variant = variant._replace(released=tuple(released))
    state.host_memory.forget(program.keep_variant(end.situation, variant, nbytes))
    _limit_variants(state, program)
    bind_names(state, ids, end_successions(program.successions, names, recording.values))


def named_before(state: SessionState, ids: Sequence[int]) -> list[Any]:
    """Return what ids name before a run, without keeping it alive: what the run drops is gone as without a record."""
    values = [state.values.get(id) for id in ids]
    return [ref(value) if value.__class__ is Value else lambda value=value: value for value in values]


def names_after(state: SessionState, ids: list[int], before: list[Any]) -> list[tuple[int, Any]]:
    """Return the slots that name something else than ``before``, as ``named_before`` has it; None: nothing any more."""
    now, count = [state.values.get(id) for id in ids], len(before)
    names = [(slot, now[slot]) for slot in range(count) if not _is_still(now[slot], before[slot])]
    return names + [(slot, now[slot]) for slot in range(count - len(ids), 0) if now[slot] is not None]


def _is_still(now: Any, before: Any) -> bool:
    """Whether an id names what it named; what died meanwhile is None, as what an id names that names nothing is."""
    return now is before() and (now is not None or before.__class__ is not ReferenceType)


def bind_names(state: SessionState, ids: list[int], names: list[tuple[int, Any]]) -> None:
    """Give ids what their slots name after a run; None: nothing any more."""
    gone = _bound(state.values, ids, names)
    if gone:
        forget(state, gone)


def _bound_in_python(named: dict[int, Any], ids: list[int], names: list[tuple[int, Any]]) -> list[int]:
    gone = []
    for slot, value in names:
        if value is None:
            gone.append(ids[slot])
        else:
            named[ids[slot]] = value
    return gone


_bound: Final[Callable[[dict[int, Any], list[int], list[tuple[int, Any]]], list[int]]] = bind_pairs or _bound_in_python
"""Gives ids what slots name, and returns those whose slots name nothing any more."""


def _limit_variants(state: SessionState, newest: Program) -> None:
    """Leave the variants of programs that ran longest ago, where the session has too many; they may be made again."""
    programs: list[Program] = [program for program in state.programs.values() if program.variants]
    excess = sum([len(program.variants) for program in programs]) - most_session_variants
    for program in sorted(programs, key=attrgetter("last_run")):
        if excess <= 0:
            return
        if program is not newest:
            excess -= len(program.variants)
            state.host_memory.forget(program.forget_variants())


def _variant(recording: Recording, names: list[tuple[int, Any]]) -> Variant | None:
    """Return what was recorded; None where it goes on as instructions, also since it cannot be optimised."""
    try:
        return recording.variant(names)
    except TelegradError as error:
        recording.recorder.give_up(str(error))
        return None
    except Exception:
        _log.exception("a program could not be optimised; it is executed as instructions")
        recording.recorder.give_up("it could not be optimised: the server's log says why")
        return None


def continue_run(state: SessionState, rest: RestOfRun) -> int:
    """Execute the rest of a run until it ends, or the turn does; return what the turn is to count."""
    if state.is_stopped:  # by an interrupt
        state.inbox.extendleft(reversed(rest.program.template.instructions(rest.ids)))
        return 0
    return _execute(state, rest) or 0


def _execute(state: SessionState, run: RestOfRun) -> int | None:
    """Execute a run, which is yet to begin where it has no execution, until it ends or the turn does.

    Returns what the turn is to count; None where the instructions have to be executed instead, since an index is bad.
    """
    program, variant, values, ids, execution = run
    current = state.context
    checks, excluded = current.checks, current.excluded
    current.excluded = excluded | keys.BELOW_AUTOCAST
    try:
        if execution is None:
            execution = _begun(state, run)
            if execution is None or execution is _VERIFIED:
                return None if execution is None else 0
        checks.covered = True  # by `Variant.begin`
        if not execution.advance(state.replies):
            state.inbox.appendleft(run._replace(execution=execution))
            return 0
        names = variant.finish(values, execution.outputs())
        if program.successions:
            names = end_successions(program.successions, names, values)
        if variant.changed:
            program.standing.note_end(variant, variant.changed)
    except Exception as error:
        _fail(state, program.template.instructions(ids), error)
        return 0
    finally:
        current.excluded = excluded
        checks.covered = False
    state.operations += program.calls
    bind_names(state, ids, names)
    return program.calls  # type: ignore[no-any-return]


def _begun(state: SessionState, run: RestOfRun) -> Any:
    """Begin to execute a run; ``_VERIFIED`` where its instructions are executed, too, and both are compared."""
    program, variant, values, ids, _ = run
    if state.verifies_programs and begin_verification(state, program, variant, values, ids):
        return _VERIFIED
    if variant.released:
        forget(state, [ids[slot] for slot in variant.released])
    return begun(variant, values, program.template)


def _fail(state: SessionState, instructions: list[Any], error: Exception) -> None:
    """Fail at the instruction whose operation the error names, the first if it names none; all others are skipped."""
    name = error.message.split(":")[0] if isinstance(error, TelegradError) else ""
    culprit = next((one for one in instructions if _name_of(one) == name), instructions[0])
    state.fail(culprit, error)
    state.inbox.extendleft(reversed([one for one in instructions if one is not culprit]))


def _name_of(instruction: Any) -> str:
    return BY_INDEX[instruction.op].op.public if instruction.__class__ is messages.Call else ""


HANDLERS: Final[dict[type, Any]] = {
    DefineProgram: define_program, RunProgram: run_program, EndOfRun: end_run, RestOfRun: continue_run,
    EndOfVerification: end_verification,
}  # fmt: skip
"""What handles the instructions about programs."""
