"""The kernel cache: what was compiled is found again, and what the usual kernels are compiles for the architecture."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine.cuda import warm
from server.engine.cuda.runtime import compiler
from server.engine.cuda.texts import texts_of
from telegrad_protocol import dtypes

from .cuda_registrations import registrations, withdraw

_ = registrations
withdraw()

TARGET = "sm_90"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def test_a_text_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'extern "C" __global__ void nothing() {}'
    assert not compiler.is_kept(text, TARGET)
    found = compiler.compile_cubin(text, TARGET)
    assert compiler.is_kept(text, TARGET)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compiler.compile_cubin(text, TARGET) == found


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", str(tmp_path / "file" / "kernels"))
    assert compiler.compile_cubin('extern "C" __global__ void nothing() {}', TARGET)


def test_what_does_not_compile_is_refused_with_the_log() -> None:
    with pytest.raises(compiler.KernelCompilationError, match="undefined_name"):
        compiler.compile_cubin('extern "C" __global__ void wrong() { undefined_name(); }', TARGET)


def test_usual_kernels_compile_beforehand() -> None:
    calls = itertools.islice(warm.usual_calls(dtypes.bfloat16), 0, None, 12)
    texts = texts_of([*calls, *warm.hopper_calls(dtypes.bfloat16)], TARGET).texts
    assert texts
    assert warm.compile_all(texts, TARGET) == len(texts)
    assert warm.compile_all(texts, TARGET) == 0
