"""Ctrl-C in a terminal: what has not started is dropped, and the program, or its user, goes on at once."""

from __future__ import annotations

import signal
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from telegrad._session import interrupts

from .server_process import ServerProcess
from .terminal import CTRL_C, PATIENCE_SECONDS, Terminal

QUEUED = 100_000
"""More operations than the server can execute while these tests run, each of which takes about a millisecond."""


@pytest.fixture
def run(server: ServerProcess, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Runs the text of a program in a terminal."""
    opened: list[Terminal] = []

    def start(text: str, *options: str, **variables: str) -> Terminal:
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(text))
        opened.append(Terminal(*options, str(program), TELEGRAD_URL=server.url, **variables))
        return opened[-1]

    yield start
    for terminal in opened:
        with terminal:
            pass


def test_what_has_not_started_is_dropped_while_the_program_waits(
    server: ServerProcess, run: Callable[..., Terminal]
) -> None:
    before = server.operations
    terminal = run(
        f"""
        import telegrad as tg
        matrix, counter = tg.randn(300, 300), tg.zeros(())
        other = matrix
        counter.item()
        for i in range({QUEUED}):
            other = other @ matrix
            counter.add_(1)
        try:
            print("queued")
            other.sum().item()
        except KeyboardInterrupt:
            print("interrupted")
        print("sum", (matrix * 0 + 2).sum().item(), "counted", int(counter.item()))
        try:
            other.sum().item()
        except RuntimeError as error:
            print(type(error).__name__, error)
        """,
        TELEGRAD_MAX_AHEAD_SECONDS="inf",
    )
    terminal.await_match("queued")
    terminal.type(CTRL_C)
    terminal.await_match("interrupted")
    counted = int(terminal.await_match(r"sum 180000\.0 counted (\d+)").group(1))
    executed = server.operations - before
    assert counted < QUEUED
    assert 2 * counted <= executed <= 2 * counted + 20, "an update in place holds the last one that was executed"
    message = terminal.await_match(r"NotComputedError (.*)").group(1)
    assert "an interrupt dropped matmul at " in message and "program.py:7 in <module> before it ran" in message
    assert terminal.await_end() == 0, terminal.text


def test_an_interrupt_between_operations_is_sent_all_the_same(
    server: ServerProcess, run: Callable[..., Terminal]
) -> None:
    """The program computes something else when the signal comes, and catches the exception far from telegrad."""
    before = server.operations
    terminal = run(
        f"""
        import telegrad as tg
        matrix, counter = tg.randn(300, 300), tg.zeros(())
        counter.item()
        for i in range({QUEUED}):
            matrix @ matrix
            counter.add_(1)
        try:
            print("queued")
            while True:
                pass
        except KeyboardInterrupt:
            pass
        print("counted", int(counter.item()))
        for i in range(3):
            counter.add_(1)
        print("counted", int(counter.item()))
        """,
        TELEGRAD_MAX_AHEAD_SECONDS="inf",
    )
    terminal.await_match("queued")
    terminal.type(CTRL_C)
    first = int(terminal.await_match(r"counted (\d+)").group(1))
    assert int(terminal.await_match(r"counted (\d+)").group(1)) == first + 3
    assert terminal.await_end() == 0, terminal.text
    assert first < QUEUED
    assert server.operations - before < 2 * QUEUED


def test_a_user_at_a_prompt_goes_on_and_interrupts_again(server: ServerProcess, run: Callable[..., Terminal]) -> None:
    before = server.operations
    terminal = run(
        """
        import telegrad as tg
        matrix = tg.randn(300, 300)
        matrix.sum().item()
        def loop():
            other = matrix
            for i in range(10**9):
                if i == 100:
                    print("looping")
                other = (other @ matrix) * 1e-3
        """,
        "-i",
    )
    for turn in range(2):
        terminal.await_match(">>> ")
        terminal.type("loop()\n")
        terminal.await_match("\nlooping")
        terminal.type(CTRL_C)
        terminal.await_match("KeyboardInterrupt\n>>> ")
        terminal.type(f"print('sum', (matrix * 0 + {turn}).sum().item())\n")
        terminal.await_match(rf"\nsum {turn * 90000}\.0")
    terminal.await_match(">>> ")
    terminal.type("print('ahead', tg.wire_stats().ahead, tg.wire_stats().operations)\n")
    ahead, operations = map(int, terminal.await_match(r"\nahead (\d+) (\d+)").groups())
    terminal.type("exit()\n")
    assert terminal.await_end() == 0, terminal.text
    assert ahead <= 1
    assert server.operations - before < operations


def test_an_interrupt_that_nobody_catches_ends_the_program_as_usual(run: Callable[..., Terminal]) -> None:
    terminal = run(
        """
        import telegrad as tg
        matrix = tg.randn(300, 300)
        for i in range(10**9):
            if i == 100:
                print("looping")
            matrix @ matrix
        """
    )
    terminal.await_match("looping")
    terminal.type(CTRL_C)
    assert terminal.await_end() in (130, -2), terminal.text
    assert "Traceback (most recent call last)" in terminal.text
    assert terminal.text.rstrip().endswith("KeyboardInterrupt"), terminal.text


def test_a_program_that_handles_the_signal_itself_loses_nothing(
    server: ServerProcess, run: Callable[..., Terminal]
) -> None:
    terminal = run(
        """
        import signal
        import telegrad as tg
        stop = []
        signal.signal(signal.SIGINT, lambda *_: stop.append(1))
        matrix, counter = tg.randn(300, 300), tg.zeros(())
        done = 0
        while not stop:
            if done == 100:
                print("looping")
            matrix @ matrix
            counter.add_(1)
            done += 1
        print("counted", int(counter.item()), "of", done)
        """
    )
    terminal.await_match("looping")
    terminal.type(CTRL_C)
    counted, done = map(int, terminal.await_match(r"counted (\d+) of (\d+)").groups())
    assert counted == done
    assert terminal.await_end() == 0, terminal.text


def test_an_interrupt_while_a_tensor_is_released_is_raised_after_it(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ignores what a destructor raises: the program would go on, and the tensor would stay on the server."""
    tensor, released = tg.ones(4), []
    free = tensor._session.free

    def interrupted_free(number: int) -> None:
        if not released:
            signal.raise_signal(signal.SIGINT)
        released.append(number)
        free(number)

    monkeypatch.setattr(tensor._session, "free", interrupted_free)
    number, waits = tensor._id, threading.Event()
    with pytest.raises(KeyboardInterrupt):
        del tensor
        waits.wait(PATIENCE_SECONDS)
    assert released == [number]


def test_an_interrupt_is_raised_though_its_signal_came_just_before_a_wait(
    tg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a signal does not end the wait that begins: here the first one is lost."""
    sent: list[int] = []
    tensor, send = tg.ones(4), interrupts._signal_main_thread
    session, free = tensor._session, tensor._session.free

    def lossy_signal() -> None:
        sent.append(len(sent))
        if len(sent) > 1:
            send()

    def interrupted_free(number: int) -> None:
        monkeypatch.setattr(session, "free", free)
        signal.raise_signal(signal.SIGINT)
        free(number)

    monkeypatch.setattr(interrupts, "_signal_main_thread", lossy_signal)
    monkeypatch.setattr(session, "free", interrupted_free)
    waits = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        del tensor
        waits.wait(PATIENCE_SECONDS)
        raise AssertionError("the interrupt was lost")
    assert len(sent) >= 2


def test_a_loop_is_never_further_ahead_than_the_bound(server: ServerProcess, tg: Any) -> None:
    """What a progress bar counts is executed, but for the bound, which is some of what takes a second."""
    matrix, small = tg.randn(400, 400), tg.ones(4)
    for _ in range(5000):  # at a speed that is of no use for the loop that follows
        small + 1
    tg.cuda.synchronize()
    before, bound = server.operations, 0.0
    for i in range(300):
        matrix @ matrix
        stats = tg.wire_stats()
        bound = max(bound, stats.max_ahead if i > 20 else 16)  # nothing is known of the first of these
        assert stats.ahead <= bound
        if i % 50 == 49:
            assert i + 1 - (server.operations - before) <= bound + 8
    assert bound < 5000
    tg.cuda.synchronize()
    assert tg.wire_stats().ahead <= 1
