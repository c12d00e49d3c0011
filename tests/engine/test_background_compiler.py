"""Texts that are compiled beside this process, by the real compiler: what becomes of them, and of the process."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from server.compilations import compilations
from server.engine.cuda.runtime import background
from server.engine.cuda.runtime.background import Awaited, BackgroundCompiler
from server.engine.cuda.runtime.compile_texts import NOT_KEPT
from server.engine.cuda.runtime.compiler import is_kept

TARGET = "sm_90"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def text(number: int) -> str:
    return f'extern "C" __global__ void number_{number}(int* out) {{ *out = {number}; }}'


WRONG = 'extern "C" __global__ void wrong() { undefined_name(); }'


def processes() -> list[psutil.Process]:
    """Those that compile for this one, which may have servers of other tests as children too."""
    return [child for child in psutil.Process().children() if background.COMMAND[-1] in child.cmdline()]


def wait_for(awaited: Awaited) -> None:
    while not awaited.is_over():
        time.sleep(0.001)


def test_texts_are_compiled_and_the_process_ends(caplog: pytest.LogCaptureFixture) -> None:
    before = compilations.on_path, compilations.beside, compilations.failed
    compiler = BackgroundCompiler(TARGET)
    texts = [text(number) for number in range(2 * background.MOST_SENT)]
    awaited = Awaited(compiler, [*texts, WRONG, *texts])
    assert not awaited.is_over()
    assert processes(), "a process compiles"
    wait_for(awaited)
    assert not processes()
    assert all([is_kept(one, TARGET) and not awaited.has_failed(one) for one in texts])
    assert awaited.has_failed(WRONG)
    after = compilations.on_path, compilations.beside, compilations.failed
    assert [b - a for a, b in zip(before, after)] == [0, len(texts), 1]
    assert [record.message for record in caplog.records].count(
        "a kernel was not compiled; operations are executed one by one"
    ) == 1
    again = Awaited(compiler, [*texts, WRONG])
    assert again.is_over(), "nothing is compiled twice"


def test_several_processes_compile_and_one_that_ends_costs_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PROCESSES", 3)
    compiler = BackgroundCompiler(TARGET)
    texts = [text(number) for number in range(11)]
    awaited = Awaited(compiler, texts)
    assert not awaited.is_over()
    running = processes()
    assert len(running) == 3
    running[1].kill()
    wait_for(awaited)
    assert not processes()
    assert [awaited.has_failed(one) for one in texts].count(True) == 1
    assert all([is_kept(one, TARGET) or awaited.has_failed(one) for one in texts])


def test_a_process_that_ends_costs_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PROCESSES", 1)
    compiler = BackgroundCompiler(TARGET)
    texts = [text(number) for number in range(3)]
    awaited = Awaited(compiler, texts)
    awaited.is_over()
    (process,) = processes()
    process.kill()
    wait_for(awaited)
    assert [awaited.has_failed(one) for one in texts] == [True, False, False]


def test_processes_that_only_end_are_not_started_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "COMMAND", ("false",))
    compiler = BackgroundCompiler(TARGET)
    awaited = Awaited(compiler, [text(number) for number in range(9)])
    wait_for(awaited)
    assert all([awaited.has_failed(text(number)) for number in range(9)])
    monkeypatch.setattr(background, "COMMAND", ("/nowhere/at/all",))
    other = Awaited(BackgroundCompiler(TARGET), [text(0)])
    wait_for(other)
    assert other.has_failed(text(0))


def test_nobody_who_waits_leaves_no_process() -> None:
    compiler = BackgroundCompiler(TARGET)
    awaited, other = Awaited(compiler, [text(1)]), Awaited(compiler, [text(2)])
    assert not awaited.is_over() and not other.is_over()
    del awaited
    assert processes()
    del other
    assert not processes()


def test_what_cannot_be_kept_has_failed(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.write_text("no directory")
    awaited = Awaited(BackgroundCompiler(TARGET), [text(1)])
    wait_for(awaited)
    assert awaited.has_failed(text(1))
    assert NOT_KEPT in [record.cause for record in caplog.records]  # type: ignore[attr-defined]
