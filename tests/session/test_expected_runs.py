"""Parts that are recognised by their bytes are the runs that comparing all their instructions would have found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.session.programs.sequences import Program
from telegrad._session.parts.table import ProgramTable
from telegrad._session.thread_modes import DEFAULT
from telegrad_protocol import messages, wire
from telegrad_protocol.ops import TABLE
from telegrad_protocol.programs.messages import DefineProgram, RunProgram

from .driver import F32

ADD, CAT, SUM, ADAM = (TABLE[name].index for name in ("add", "cat", "sum", "_fused_adamw_"))
NO_GRAD = DEFAULT.but(grad=False)


class _Server:
    """Makes instructions of what a client sends, as a session does."""

    def __init__(self) -> None:
        self._programs: dict[int, Program] = {}

    def instructions(self, sent: list[Any]) -> Iterator[Any]:
        for one in wire.decode_instructions(wire.encode_batch(sent)):
            if isinstance(one, DefineProgram):
                self._programs[one.program] = Program(one)
            elif isinstance(one, RunProgram):
                program = self._programs[one.program]
                yield from program.template.instructions(program.ids(one))
            else:
                yield one


class _Table(ProgramTable):
    """Counts the parts that were compared instruction by instruction."""

    compared = 0

    def _compare(self, *args: Any) -> Any:
        self.compared += 1
        return super()._compare(*args)


def _rates(rate: float) -> list[Any]:
    """What follows the lists of tensors: the learning rate, and what stays."""
    return [[rate], 0.9, 0.999, 0.01, 1e-8, False, False, None, None, True]


def _step(
    first: int, given: list[int], moving: int, rate: float, data: bytes, dim: int = 0, over: int | None = None
) -> list[Any]:
    """A training step of sorts, on tensors that stay, one that is made anew before each step, and numbers."""
    a, b, c, d, e = range(first + 1, first + 6)
    return [
        messages.Upload(a, 7, F32, (len(data) // 4,), "cpu", data),
        messages.Call(ADD, 7, (b,), [moving, [rate], 1]),
        messages.Call(CAT, 8, (c,), [[b, given[0], given[1], a], dim]),
        messages.Call(SUM, 9, (d,), [c, over, False, None], [b]),
        messages.Backward(7, (d,), (None,), [(given[0], e)], False, False),
        messages.Call(ADAM, 7, (), [given[:1], [e], *[[one] for one in given[2:6]], *_rates(rate)]),
        messages.Free([c, moving]),
    ]


def _is_sent(table: ProgramTable, server: _Server, part: list[Any], first: int, modes: Any = DEFAULT) -> None:
    """Hold what the server makes of a part against its instructions."""
    entries = part if modes is DEFAULT else [(modes, one) for one in part]
    sent = table.replace(entries, first)
    plain = part if sent is None else [one[1] if one.__class__ is tuple else one for one in sent]
    made = [one for one in server.instructions(plain) if not isinstance(one, messages.Mode)]
    assert wire.encode_batch(made) == wire.encode_batch(part)


@pytest.mark.parametrize("begin", [3, 120, 240, 65_300, (1 << 32) - 300, 1 << 40])
def test_whatever_varies_the_server_makes_the_same_instructions(
    begin: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telegrad._session.parts.table.Program.is_to_be_expected", lambda self: True)
    table, server = _Table(), _Server()
    first, given, rate, data, dim = begin + 20, [begin + n for n in range(6)], 0.1, bytes(8), 0
    over: int | None = None
    for number in range(300):
        first += int(rng.choice([7, 7, 7, 9, 40]))
        if rng.random() < 0.3:
            low = begin if rng.random() < 0.9 else 1
            given[int(rng.integers(6))] = int(rng.integers(low, first))
        if rng.random() < 0.3:
            rate = float(rng.choice([0.1, -0.0, 0.0, np.nan, np.inf, rng.standard_normal()]))
        if rng.random() < 0.3:
            data = rng.bytes(12 if rng.random() < 0.05 else 8)
        if rng.random() < 0.03:
            dim = int(rng.choice([0, 1, -1, 200, 5 << 16]))
        if rng.random() < 0.05:
            over = None if rng.random() < 0.5 else int(rng.integers(2))
        moving = first - 1 if rng.random() < 0.95 else int(rng.integers(begin, first))
        modes = NO_GRAD if number % 50 > 40 else DEFAULT
        _is_sent(table, server, _step(first, given, moving, rate, data, dim, over), first, modes)
    assert table.runs > 270
    assert table.compared < 270, "nothing was recognised by its bytes"


def test_steps_of_a_loop_are_recognised_by_their_bytes(rng: np.random.Generator) -> None:
    table, server = _Table(), _Server()
    first = 70_002
    for number in range(40):
        first += 15
        given = [70_000, int(rng.integers(66_000, 70_000)), *[70_001] * 4]
        part = _step(first, given, first - 2, 0.1 / (number + 1), rng.bytes(8))
        _is_sent(table, server, part, first, NO_GRAD)
        if number == 9:
            table.compared = 0
    assert not table.compared


def test_a_tensor_of_the_run_in_the_place_of_an_input_is_another_program() -> None:
    """The number of an input that varies may become any but those of the tensors that the run makes."""
    table, server = _Table(), _Server()
    for number in range(12):
        first = 1_000 + 10 * number
        other = first + 2 if number == 11 else 300 + number
        part = [messages.Call(ADD, 7, (first + 1 + n,), [other if n == 3 else 299, 299, 1]) for n in range(4)]
        _is_sent(table, server, part, first)
    assert table.programs == 1


def test_a_program_that_replaced_another_one_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telegrad._session.parts.table.MOST_PROGRAMS", 1)
    table, server = _Table(), _Server()
    for number in range(30):
        first = 1_000 + 10 * number
        op = (ADD, SUM)[number // 5 % 2]
        args: list[Any] = [300, 300, 1] if op == ADD else [300, None, False, None]
        part = [messages.Call(op, 7, (first + 1 + n,), args) for n in range(3)]
        _is_sent(table, server, part, first)
