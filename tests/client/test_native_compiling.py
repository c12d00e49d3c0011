"""The path of a call in C is compiled once, where there is a compiler, and nothing depends on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.native.__main__ import main as compile_for_all
from telegrad import _native
from telegrad_protocol import native
from telegrad_protocol.errors import ConfigurationError
from telegrad_protocol.native import compiling, place

from ..support.compilers import needs_compiler
from ..transport.waiting import wait_until

PROGRAM = """
import numpy as np
import telegrad as tg
from server.worker.host import Host
from telegrad._native import binding
from telegrad._ops import call

with tg.connect(in_process=Host(["cpu"])):
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        (x * x + 1).sum().backward()
    print(x.grad.tolist(), binding.call is not call.call)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, in which nothing was looked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_native, "_is_looked_for", False)
    return tmp_path


def _run(choice: str) -> str:
    environment = {**os.environ, native.VARIABLE: choice, "TELEGRAD_COMPILED_KERNELS": "never"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def hasty_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler leaves out what takes most of its time."""
    command = compiling.compiler()
    monkeypatch.setattr(compiling, "compiler", lambda: [*command, "-O0"] if command else None)


@needs_compiler
def test_programs_compute_the_same_with_it_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # they have the machine's cache, where it is compiled
    assert [_run("never"), _run("wait")] == ["[6.0, 12.0] False", "[6.0, 12.0] True"]


@needs_compiler
def test_a_process_beside_compiles_it_for_later_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "beside")
    assert _native.load() is None
    _native.compile_beside()
    library = place.library(_native.SOURCE)
    assert library is not None
    wait_until(lambda: not place.is_missing(library), "it is compiled, or has failed")
    assert _native.load() is not None


def test_it_is_left_alone_where_it_is_not_wanted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "never")
    assert _native.load() is None
    _native.compile_beside()
    assert not list(cache.iterdir())
    monkeypatch.setenv(native.VARIABLE, "always")
    with pytest.raises(ConfigurationError, match="TELEGRAD_NATIVE: expected one of beside, wait, never, got 'always'"):
        _native.load()


def test_a_compiler_that_fails_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    monkeypatch.setenv(native.VARIABLE, "wait")
    monkeypatch.setattr(compiling, "compiler", lambda: ["sh", "-c", f"echo asked >> {asked}; exit 1"])
    for _ in range(3):
        assert _native.load() is None
    assert asked.read_text() == "asked\n"


def test_nothing_happens_without_a_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "wait")
    monkeypatch.setenv("PATH", "")
    assert _native.load() is None
    assert not list(cache.iterdir())


@needs_compiler
def test_nothing_is_started_where_nothing_could_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "beside")
    started: list[object] = []
    monkeypatch.setattr(compiling.subprocess, "run", lambda *command, **options: started.append(command))
    monkeypatch.setattr(compiling.os, "access", lambda *folder: False)
    _native.compile_beside()
    assert not started
    monkeypatch.setattr(_native, "_is_looked_for", False)
    monkeypatch.setattr(compiling.os, "access", lambda *folder: True)
    _native.compile_beside()
    assert started


@needs_compiler
def test_what_others_may_have_written_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "wait")
    assert _native.load() is not None
    library = place.library(_native.SOURCE)
    assert library is not None
    library.parent.chmod(0o777)
    assert _native.load() is None


@needs_compiler
@pytest.mark.usefixtures("hasty_compiler")
def test_a_worker_waits_for_what_it_does_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    from server.native import SOURCE, load

    monkeypatch.setenv(native.VARIABLE, "beside")
    assert native.load(SOURCE, "server.native") is None
    assert load.__wrapped__() is not None
    monkeypatch.setenv(native.VARIABLE, "never")
    assert load.__wrapped__() is None


@needs_compiler
@pytest.mark.usefixtures("hasty_compiler")
def test_an_installation_may_have_it_for_all_its_users(
    cache: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an image has that is built where there is a compiler: nothing is compiled, or kept, by those who use it."""
    from server.native import SOURCE

    monkeypatch.setattr(sys, "prefix", str(tmp_path_factory.mktemp("prefix")))
    assert compile_for_all() == 0
    monkeypatch.setenv("PATH", "")
    library = place.library(SOURCE)
    assert library is not None and library.is_relative_to(sys.prefix)
    assert native.load(SOURCE, "server.native", waits=True) is not None
    assert not list(cache.iterdir())


def test_an_installation_without_a_compiler_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("PATH", "")
    assert compile_for_all() == 1
    assert "there is no compiler" in capsys.readouterr().err
