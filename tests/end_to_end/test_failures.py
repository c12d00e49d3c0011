"""What only data can show arrives later, as the error that it is, with the line of the program that caused it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from telegrad.errors import IndexOutOfRangeError, NotComputedError

from .server_process import ServerProcess

Start = Callable[..., "subprocess.Popen[str]"]


def _line_of(text: str) -> int:
    return next(
        n
        for n, line in enumerate(Path(__file__).read_text().splitlines(), 1)
        if text in line and "_line_of" not in line
    )


def test_an_index_out_of_range_is_raised_at_the_next_read(tg: Any, server: ServerProcess) -> None:
    table, rows = tg.zeros(10, 4), tg.tensor([1, 99])
    counter = tg.zeros(1)
    tg.cuda.synchronize()
    before = server.operations
    looked_up = tg.nn.functional.embedding(rows, table)  # the culprit
    doubled = looked_up * 2
    counter += 1
    with pytest.raises(IndexError, match="99") as raised:
        doubled.tolist()
    error = raised.value
    assert isinstance(error, IndexOutOfRangeError)
    assert error.site.startswith(f"{__file__}:{_line_of('# the culprit')} in test_an_index")
    assert (
        "embedding" in error.operation and "float32[10,4]" in error.operands and "Traceback" in error.server_traceback
    )
    assert f"{__file__}:{_line_of('# the culprit')}" in str(error)
    assert server.operations == before, "an operation ran after the one that failed"
    assert counter.tolist() == [0.0]
    for victim in (looked_up, doubled, doubled + 1):
        with pytest.raises(NotComputedError, match=rf"embedding failed at .*:{_line_of('# the culprit')}"):
            victim.tolist()
    assert (counter + 1).tolist() == [1.0]


def test_a_failure_is_raised_once_and_without_a_read_too(tg: Any) -> None:
    tg.zeros(3).index_select(0, tg.tensor([7]))
    with pytest.raises(IndexOutOfRangeError):
        for _ in range(10_000):
            tg.zeros(1)
    assert tg.ones(2).tolist() == [1.0, 1.0]


def test_gradients_dropped_while_the_session_failed_are_gone(tg: Any) -> None:
    weight = tg.ones(2, requires_grad=True)
    (weight * 3).sum().backward()
    assert weight.grad.tolist() == [3.0, 3.0]
    other = tg.ones(2)
    bad = tg.zeros(3).index_select(0, tg.tensor([7]))
    weight.grad = None
    other.requires_grad_()
    with pytest.raises(IndexOutOfRangeError):
        bad.tolist()
    (weight * other * 5).sum().backward()
    assert (weight.grad.tolist(), other.grad.tolist()) == ([5.0, 5.0], [5.0, 5.0])


BLOCKING = """
import sys, traceback
import telegrad as tg
tg.connect(sys.argv[1])
rows = tg.tensor([7])
table = tg.zeros(3)
try:
    table.index_select(0, rows)
    print("not here")
except IndexError as error:
    print(type(error).__name__, traceback.extract_tb(error.__traceback__)[0].lineno)
print(tg.ones(2).tolist())
tg.disconnect()
"""


def test_launch_blocking_raises_at_the_call(server: ServerProcess, start_program: Start) -> None:
    output, errors = start_program(BLOCKING, server.url, TELEGRAD_LAUNCH_BLOCKING="1").communicate()
    assert output.splitlines() == ["IndexOutOfRangeError 8", "[1.0, 1.0]"], errors
