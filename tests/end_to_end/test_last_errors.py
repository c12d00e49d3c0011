"""No error is lost: what fails after a program's last line is printed when it ends, and the exit status tells of it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import telegrad
from telegrad._session import last_errors
from telegrad.errors import IndexOutOfRangeError, SessionLostError

from .server_process import ROOT, ServerProcess, clean_environment

Run = Callable[..., tuple[int, str, str]]

BEGIN = """
import atexit, os, sys, threading
atexit.register(lambda: print("another function of atexit", flush=True))
import telegrad as tg
connection = tg.connect(sys.argv[1])
def fail():
    return tg.zeros(3).index_select(0, tg.tensor([7]))  # the culprit
kept = open(sys.argv[2], "w")
kept.write("unflushed")
"""


@pytest.fixture
def run(server: ServerProcess, tmp_path: Path) -> Run:
    """Runs a program that goes on after ``BEGIN``: its exit status, what it printed, and its errors."""

    def run(end: str, url: str = server.url, **variables: str) -> tuple[int, str, str]:
        return _run(tmp_path, end, url, **variables)

    return run


def _run(folder: Path, end: str, url: str, **variables: str) -> tuple[int, str, str]:
    script = folder / "script.py"
    script.write_text(BEGIN + end)
    done = subprocess.run(
        [sys.executable, str(script), url, str(folder / "kept.txt")],
        env=clean_environment(**variables), cwd=ROOT, text=True, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_failure_after_the_last_line_is_printed_as_an_uncaught_exception(run: Run, tmp_path: Path) -> None:
    status, output, errors = run("fail()\nprint('end')")
    assert status == 1
    assert output == "end\nanother function of atexit\n"
    assert (tmp_path / "kept.txt").read_text() == "unflushed"
    culprit = next(n for n, line in enumerate((BEGIN).splitlines(), 1) if "the culprit" in line)
    lines = errors.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{tmp_path / "script.py"}", line {culprit}, in fail'
    assert lines[2] == "    return tg.zeros(3).index_select(0, tg.tensor([7]))  # the culprit"
    assert "IndexOutOfRangeError" in lines[3] and errors.count("Traceback") == 1


@pytest.mark.parametrize(
    ("end", "status", "times"),
    [
        ("tg.ones(2)", 0, 0),
        ("fail(); sys.exit()", 1, 1),
        ("fail(); sys.exit(0)", 1, 1),
        ("fail(); sys.exit(3)", 3, 1),
        ("fail(); sys.exit('because')", 1, 1),
        ("fail(); raise SystemExit", 1, 1),
        ("fail(); exit(3)", 3, 1),
        ("fail(); quit()", 1, 1),
        ("fail().tolist()", 1, 1),
        ("fail(); tg.disconnect()", 1, 1),
        ("fail(); raise ValueError('of the program')", 1, 1),
        ("fail(); os._exit(5)", 5, 0),
        ("threading.Thread(target=fail).start()", 1, 1),
        ("tg.ones(2).tolist(); fail(); tg.connect(sys.argv[1]); fail()", 1, 2),
        ("with connection: fail(); sys.exit(4)", 4, 1),
        ("sys.excepthook = lambda *error: print(error[0].__name__, file=sys.stderr)\nfail()", 1, 1),
        ("fail()\nif not os.fork(): sys.exit()\nassert os.waitstatus_to_exitcode(os.wait()[1]) == 0", 1, 1),
        ("fail()\ntry: tg.disconnect()\nexcept IndexError: pass", 0, 0),
    ],
)  # fmt: skip
def test_every_end_of_a_program(run: Run, end: str, status: int, times: int) -> None:
    got, _, errors = run(end)
    assert errors.count("IndexOutOfRangeError") == times, errors
    assert got == status, errors


@pytest.mark.parametrize("end", ["", "fail()"])
def test_threads_that_end_with_the_program_say_nothing(run: Run, end: str) -> None:
    work = "is_at_work = threading.Event()\ndef work():\n    while True: tg.ones(2).sum().item(); is_at_work.set()\n"
    start = "threading.Thread(target=work, daemon=True).start(); is_at_work.wait()\n"
    status, _, errors = run(work + start + end)
    assert (status, errors.count("Error")) == ((1, 1) if end else (0, 0)), errors


def test_the_failure_of_a_private_server_is_printed_too(run: Run) -> None:
    status, _, errors = run("tg.disconnect(); tg.connect(devices='cpu'); fail()")
    assert status == 1 and "IndexOutOfRangeError" in errors


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_tell_of_their_failures(run: Run, method: str) -> None:
    status, output, errors = run(
        "import multiprocessing\n"
        "def work():\n    tg.connect(sys.argv[1])\n    fail()\n"
        "if __name__ == '__main__':\n"
        f"    process = multiprocessing.get_context({method!r}).Process(target=work)\n"
        "    process.start(); process.join(); print('status', process.exitcode, flush=True)\n"
    )
    assert "status 1\n" in output and status == 0, errors
    assert errors.count("IndexOutOfRangeError") == 1


def test_disconnect_and_the_end_of_a_block_raise(server: ServerProcess) -> None:
    def fail() -> None:
        telegrad.zeros(3).index_select(0, telegrad.tensor([7]))

    connection = telegrad.connect(server.url)
    fail()
    with pytest.raises(IndexOutOfRangeError, match="test_last_errors"):
        telegrad.disconnect()
    assert "closed" in repr(connection)
    connection.disconnect()
    with pytest.raises(IndexOutOfRangeError), telegrad.connect(server.url):
        fail()
    with pytest.raises(KeyError) as raised, telegrad.connect(server.url):
        fail()
        raise KeyError("of the block")
    assert "IndexOutOfRangeError" in raised.value.__notes__[0]


def test_a_server_that_is_gone_is_no_error_if_all_was_answered(tmp_path: Path) -> None:
    with ServerProcess() as server:
        end = f"tg.ones(2).tolist(); os.kill({server.process.pid}, {int(signal.SIGKILL)})"
        status, _, errors = _run(tmp_path, end, server.url)
        assert (status, errors) == (0, "")


def test_a_server_that_is_gone_with_work_is_one_short_error(tmp_path: Path) -> None:
    with ServerProcess() as server:
        end = f"tg.ones(2).tolist(); os.kill({server.process.pid}, {int(signal.SIGKILL)}); x = tg.ones(2) + 1"
        status, _, errors = _run(tmp_path, end, server.url)
        assert status == 1 and "Traceback" not in errors
        assert errors.count("Error") == 1 and 1 <= len(errors.splitlines()) <= 3, errors


def test_what_is_not_done_in_time_is_dropped_and_told(run: Run) -> None:
    end = "a = tg.randn(1500, 1500)\nfor _ in range(3): a = (a @ a) * 1e-3"
    status, _, errors = run(end, TELEGRAD_DISCONNECT_SECONDS="0.01")
    assert status == 1 and "was not done within 0.01 s" in errors and "Traceback" not in errors, errors


def test_a_bad_limit_is_refused(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAD_DISCONNECT_SECONDS", "soon")
    with pytest.raises(telegrad.errors.ConfigurationError, match="TELEGRAD_DISCONNECT_SECONDS must be a number"):
        telegrad.connect(server.url)


def test_a_daemon_threads_block_leaves_its_session_to_the_end_of_the_program(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """It had printed that its session was lost, with status 1, where the end of the program had just closed that."""
    reported: list[BaseException] = []
    monkeypatch.setattr(last_errors, "report", reported.append)
    opened: list[Any] = []
    is_open, is_ending = threading.Event(), threading.Event()

    def work() -> None:
        with contextlib.suppress(SystemExit), telegrad.connect(in_process=host) as connection:
            opened.append(connection)
            is_open.set()
            is_ending.wait()
            telegrad.ones(2)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    is_open.wait()
    session = opened[0].session
    session.ends_with_program = True
    session._end(SessionLostError("the session was closed at the server"))
    is_ending.set()
    thread.join()
    assert reported == []
    assert [str(error).splitlines()[0] for error in opened[0].end()] == ["the session was closed at the server"]
