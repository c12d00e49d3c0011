"""Programs on the wire: a run is the sequence that it stands for, and what is no program is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from server.engine import keys
from server.engine.operators import OPERATORS, KernelInfo
from server.session.failures import begin_interrupt
from telegrad._session.parts.table import ProgramTable
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import IndexOutOfRangeError, ProtocolError
from telegrad_protocol.ops import TABLE
from telegrad_protocol.programs.messages import DefineProgram, RunProgram
from telegrad_protocol.programs.rows import MOST_SLOTS, Flat, Template, is_writable

from .driver import F32, ONES, Talk

ADD, CAT, SUM = (TABLE[name].index for name in ("add", "cat", "sum"))


def _call(op: int, outs: tuple[int, ...], *args: Any, freed: tuple[int, ...] = ()) -> messages.Call:
    return messages.Call(op, 7, outs, list(args), freed)


def _sequence(first: int, given: int, number: float) -> list[Any]:
    a, b, c, d = range(first + 1, first + 5)
    return [
        messages.Upload(a, 7, F32, (2,), "cpu", np.float32([number, 2]).tobytes()),
        _call(ADD, (b,), a, [number], 1),
        messages.Mode("grad", False),
        _call(CAT, (c,), [b, given, a], 0),
        messages.Mode("grad", True),
        messages.SetRequiresGrad(c, True),
        _call(SUM, (d,), c, None, False, None, freed=(b,)),
        messages.Backward(7, (d,), (None,), [(c, first + 5)], False, False),
        messages.Free([a]),
    ]


def _as_sent(flat: Flat, run: RunProgram) -> tuple[DefineProgram, RunProgram]:
    definition = DefineProgram(run.program, len(flat.inputs), flat.rows, flat.constants)
    decoded: Any = wire.decode_instructions(wire.encode_batch([definition, run]))
    return decoded[0], decoded[1]


def test_nothing_is_lost_on_the_way(rng: np.random.Generator) -> None:
    first, given = int(rng.integers(10, 1 << 40)), 3
    sequence = _sequence(first, given, 1.5)
    assert all(map(is_writable, sequence))
    flat = Flat(sequence, first)
    definition, _ = _as_sent(flat, RunProgram(1, first))
    template = Template(definition.inputs, definition.rows, definition.constants)
    made = template.instructions(template.ids(first, flat.inputs))
    assert wire.encode_batch(made) == wire.encode_batch(sequence)
    assert wire.encoder.encode(Flat(_sequence(first + 99, given, 2.5), first + 99).rows) == wire.encoder.encode(
        flat.rows
    )


def test_a_run_does_what_the_sequence_does(talk: Talk) -> None:
    talk.upload(3, np.float32([5, 6]))
    flat = Flat(_sequence(100, 3, 1.5), 100)
    changed = list(enumerate(flat.inputs))
    assert talk.send(*_as_sent(flat, RunProgram(1, 100, changed))) == []
    data = np.float32([2.5, 2]).tobytes()
    again = Flat(_sequence(200, 3, 2.5), 200).constants
    constants = [(at, value) for at, value in enumerate(again) if value != flat.constants[at]]
    assert constants == [(1, data), (2, [2.5])]
    assert talk.send(RunProgram(1, 200, [], [], constants)) == []
    for first, number in ((100, 1.5), (200, 2.5)):
        expected = np.float32([number + number, 2 + number, 5, 6, number, 2])
        np.testing.assert_array_equal(talk.read(first + 3), expected)
        np.testing.assert_array_equal(talk.read(first + 5), np.ones(6, np.float32))
        for freed in (first + 1, first + 2):
            assert talk.read(freed).code == "UnknownIdError"
            talk.resume()


def test_inputs_move_with_the_run(talk: Talk) -> None:
    for id in (1, 12, 22, 32):
        talk.upload(id, ONES * id)
    rows = [_call(ADD, (-1,), 0, 1)]
    talk.send(DefineProgram(4, 2, rows, [1]), RunProgram(4, 40, [(0, 1), (1, 12)]))  # type: ignore[arg-type]
    talk.send(RunProgram(4, 50, [], [1]), RunProgram(4, 60), RunProgram(4, 80, [(1, 1)], [1]))
    for first, other in ((40, 12), (50, 22), (60, 32), (80, 1)):
        np.testing.assert_array_equal(talk.read(first + 1), ONES * (1 + other))


def test_a_failure_is_that_of_the_instruction(talk: Talk) -> None:
    talk.send(messages.Site(7, "train.py", 3, "step"))
    sequence = [
        _call(ADD, (11,), 1, [1], 1), _call(ADD, (12,), 11, [1], 1), _call(ADD, (13,), 2, 12, 1), messages.Free([11])
    ]  # fmt: skip
    flat = Flat(sequence, 10)
    talk.upload(1, ONES)
    talk.upload(2, np.ones((5, 7), np.float32))
    (failure,) = talk.send(*_as_sent(flat, RunProgram(1, 10, list(enumerate(flat.inputs)))))
    assert failure.operation == "add" and failure.site == "train.py:3 in step"  # type: ignore[union-attr]
    talk.resume()
    np.testing.assert_array_equal(talk.read(12), ONES + 2)
    assert talk.read(13).code == "NotComputedError"
    talk.resume()
    assert talk.read(11).code == "UnknownIdError"


def test_the_next_client_finds_no_programs(talk: Talk) -> None:
    noted = talk.session.state.host_memory.noted
    talk.send(DefineProgram(1, 0, [messages.Free([])], []))
    assert talk.session.state.host_memory.noted > noted
    talk.send(messages.Attach())
    assert talk.session.state.host_memory.noted == noted
    (failure,) = talk.send(RunProgram(1, 10))
    assert failure.code == "ProtocolError" and "no program number 1" in failure.message  # type: ignore[union-attr]


def _pack(*values: Any) -> bytes:
    return msgspec.msgpack.encode([list(values)])


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (_pack(49, 1, 0, [[0, 99_999, 1, [-1], [0], []]], []), "no operation number 99999"),
        (_pack(49, 1, 0, [[0, ADD, 1, [-1], [0, 0], []]], [1]), "no slot 0"),
        (_pack(49, 1, 1, [[0, ADD, 1, [-99_999], [0, 0], []]], [1]), "no slot -99999"),
        (_pack(49, 1, 1, [[0, ADD, 1, [-1], [0, 0], []]], []), "fewer values than constants"),
        (_pack(49, 1, 1, [[0, ADD, 1, [-1], [0, 0], []]], [1, 2]), "1 constants has 2 values"),
        (_pack(49, 1, 1, [[0, ADD, 1, [-1], ["x", 0], []]], [1]), "str in the place of a slot"),
        (_pack(49, 1, 1, [[0, CAT, 1, [-1], [[0, 1.5]], []]], [0]), "float in the place of a slot"),
        (_pack(49, 1, -1, [], []), "at most"),
        (_pack(49, 1, 1 << 40, [], []), "at most"),
        (_pack(49, 1, 0, [[4, 1, 1]], []), "malformed"),
        (_pack(49, 1, 0, [[49, 1, 0, [], []]], []), "malformed"),
        (_pack(50, 9, 1), "no program number 9"),
    ],
)
def test_what_is_no_program_is_refused(open_talk: Callable[..., Talk], definition: bytes, message: str) -> None:
    talk = open_talk()
    talk.put(wire.BATCH, definition)
    (failure,) = talk.replies()
    assert failure.code == "ProtocolError" and message in failure.message  # type: ignore[union-attr]
    talk.resume()
    talk.upload(1, ONES)
    np.testing.assert_array_equal(talk.read(1), ONES)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (RunProgram(1, 10, [(2, 1)]), "no input number 2"),
        (RunProgram(1, 10, [], [-1]), "no input number -1"),
        (RunProgram(1, 10, [], [], [(5, 1)]), "no constant number 5"),
        (RunProgram(1, 10, [], [], [(0, "text")]), "no shape"),
        (RunProgram(1, 10, [], [], [(0, [1 << 70])]), "malformed"),
        (RunProgram(1, 10, [], [], [(1, 3)]), "no bytes"),
    ],
)
def test_runs_that_do_not_fit_are_refused(open_talk: Callable[..., Talk], run: RunProgram, message: str) -> None:
    talk = open_talk()
    rows = [messages.Upload(-1, 1, 1, (), "cpu"), messages.Free([0])]
    talk.send(DefineProgram(1, 1, rows, [[1], b"\0\0\0\0"]))  # type: ignore[arg-type]
    try:
        body = wire.encode_batch([run])
    except OverflowError:  # no number of the wire
        return
    talk.put(wire.BATCH, body)
    (failure,) = talk.replies()
    assert failure.code == "ProtocolError" and message in failure.message  # type: ignore[union-attr]
    talk.resume()
    talk.upload(1, ONES)


def test_programs_are_bounded_and_charged(open_talk: Callable[..., Talk]) -> None:
    with pytest.raises(ProtocolError, match="at most"):
        Template(0, [messages.Free([])] * ((1 << 14) + 1), [])
    talk = open_talk()
    for number in range(1 << 10):
        assert talk.send(DefineProgram(number, 0, [], [])) == []
    (failure,) = talk.send(DefineProgram(1 << 10, 0, [], []))
    assert "at most 1024 programs" in failure.message  # type: ignore[union-attr]


@pytest.fixture
def selecting() -> Iterator[list[Callable[[], None]]]:
    """What each index_select does before anything else."""
    first: list[Callable[[], None]] = []
    operator = OPERATORS["index_select"]
    before = operator.kernels[keys.CPU]

    def select(xp: Any, input: Any, dim: Any, index: Any, *, out: Any) -> None:
        for action in first:
            action()
        np.take(input, index, axis=dim, out=out)

    prepared = operator.preparers.pop(keys.CPU, None)  # which would go before the kernel
    operator.kernels[keys.CPU] = KernelInfo(select, movement=True)
    operator.clear_caches()
    yield first
    operator.kernels[keys.CPU] = before
    if prepared is not None:
        operator.preparers[keys.CPU] = prepared
    operator.clear_caches()


def _recorded_selections(talk: Talk) -> Flat:
    """Nine selections, which the session has executed as one program twice."""
    talk.upload(3, np.float32([5, 6]))
    talk.upload(4, np.int64([1, 0]))
    index = TABLE["index_select"].index
    flat = Flat([_call(index, (101 + n,), 100 + n if n else 3, 0, 4) for n in range(9)], 100)
    run = RunProgram(1, 100, list(enumerate(flat.inputs)))
    for sent in (_as_sent(flat, run), (run,), (run,)):
        assert talk.send(*sent) == []
    (variant,) = talk.session.state.programs[1].variants.values()
    assert variant is not None
    return flat


def _turns(talk: Talk, *instructions: Any) -> int:
    """How many turns instructions take, each of which ends when something has paused it."""
    talk.session.receive(wire.BATCH, memoryview(wire.encode_batch(list(instructions))))
    turns = 0
    while talk.session.queued:
        talk.session.unpause()
        talk.session.run(64)
        turns += 1
    talk.session.unpause()
    return turns


def test_a_run_that_is_executed_as_one_stops_where_its_turn_ends(
    talk: Talk, selecting: list[Callable[[], None]]
) -> None:
    _recorded_selections(talk)
    selecting.append(talk.session.pause)
    assert _turns(talk, RunProgram(1, 200)) == 9
    np.testing.assert_array_equal(talk.read(209), [6, 5])


def test_an_interrupt_ends_a_run_that_is_executed_as_one(talk: Talk, selecting: list[Callable[[], None]]) -> None:
    _recorded_selections(talk)
    selecting += (talk.session.pause, lambda: begin_interrupt(talk.session.state, 1))
    assert _turns(talk, RunProgram(1, 200), messages.Interrupt(1)) > 1
    assert talk.read(209).code == "NotComputedError"
    talk.resume()
    selecting.clear()
    assert talk.send(RunProgram(1, 300)) == []
    np.testing.assert_array_equal(talk.read(309), [6, 5])


def test_a_failure_of_a_run_that_is_executed_as_one(talk: Talk, selecting: list[Callable[[], None]]) -> None:
    def fail() -> None:
        raise IndexOutOfRangeError("index_select: index 9 is out of range")

    talk.send(messages.Site(7, "train.py", 3, "step"))
    _recorded_selections(talk)
    selecting.append(fail)
    (failure,) = talk.send(RunProgram(1, 200))
    assert failure.site == "train.py:3 in step" and failure.operation == "index_select"  # type: ignore[union-attr]
    talk.resume()
    selecting.clear()
    assert talk.read(209).code == "NotComputedError"
    talk.resume()
    assert talk.send(RunProgram(1, 300)) == []
    np.testing.assert_array_equal(talk.read(309), [6, 5])


@pytest.mark.parametrize("kind", ["upload", "call", "gradient"])
def test_clients_send_as_it_is_what_is_too_large_for_a_program(kind: str) -> None:
    far = 100 + MOST_SLOTS + 1
    makes = {
        "upload": messages.Upload(far, 7, F32, (1,), "cpu", bytes(4)), "call": _call(SUM, (far,), 3, None, False, None),
        "gradient": messages.Backward(7, (3,), (None,), [(3, far)], False, False),
    }  # fmt: skip
    table = ProgramTable()
    for _ in range(3):
        assert table.replace([makes[kind], messages.Free([far])], 100) is None
    assert table.replace([_call(SUM, (101,), 3, None, False, None), messages.Free([101])], 100) is None
    assert table.replace([_call(SUM, (101,), 3, None, False, None), messages.Free([101])], 100) is not None


def test_uploads_are_inputs_of_what_is_executed_as_one(talk: Talk) -> None:
    def flat(first: int, *numbers: float) -> Flat:
        upload = messages.Upload(first + 1, 7, F32, (2,), "cpu", np.float32(numbers).tobytes())
        return Flat([upload, *[_call(ADD, (first + 2 + n,), first + 1 + n, 3, 1) for n in range(4)]], first)

    talk.upload(3, np.float32([5, 6]))
    changed = list(enumerate(flat(100).inputs))
    assert talk.send(*_as_sent(flat(100, 1, 2), RunProgram(1, 100, changed))) == []
    for n in range(5):
        data = np.float32([n, -n]).tobytes()
        assert talk.send(RunProgram(1, 200 + 10 * n, [], [], [(1, data)])) == []
        np.testing.assert_array_equal(talk.read(205 + 10 * n), np.float32([n + 20, 24 - n]))
    (variant,) = talk.session.state.programs[1].variants.values()
    assert variant is not None and "add" in variant.executable.describe().text
    for constants in ([(1, bytes(4))], [(1, bytes(8)), (0, [3])], [(1, bytes(12)), (0, [-3])]):
        (failure,) = talk.send(RunProgram(1, 300, [], [], constants))
        assert failure.code in ("ProtocolError", "ArgumentError")  # type: ignore[union-attr]
        talk.resume()
        assert talk.read(305).code == "NotComputedError"
        talk.resume()
    assert talk.send(RunProgram(1, 400, [], [], [(1, bytes(8)), (0, [2])])) == []
    np.testing.assert_array_equal(talk.read(405), np.float32([20, 24]))


def test_constants_that_take_turns_are_situations_of_their_own(talk: Talk) -> None:
    def flat(first: int, number: float) -> Flat:
        return Flat([_call(ADD, (first + 1 + n,), first + n if n else 3, [number], 1) for n in range(5)], first)

    talk.upload(3, np.float32([5, 6]))
    assert talk.send(*_as_sent(flat(100, 1), RunProgram(1, 100, list(enumerate(flat(100, 1).inputs))))) == []
    for n in range(1, 9):
        number = (1.0, -2.0)[n % 2]
        constants = [(at, [number]) for at, value in enumerate(flat(0, number).constants) if value == [number]]
        assert talk.send(RunProgram(1, 100 + 10 * n, [], [], constants)) == []
        np.testing.assert_array_equal(talk.read(105 + 10 * n), np.float32([5, 6]) + 5 * np.float32(number))
    assert len([one for one in talk.session.state.programs[1].variants.values() if one is not None]) == 2
