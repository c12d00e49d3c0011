"""The kernel cache: what was compiled is found again, and what the usual kernels are compiles for the architecture."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ByteSize, TypeAdapter

pytest.importorskip("cuda.bindings.nvrtc")

from server import kernel_cache
from server.engine.cuda import usual_files, warm
from server.engine.cuda.runtime import compiler, cubin_files
from server.engine.cuda.texts import texts_of
from server.engine.cuda.usual_calls import usual_calls

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


@pytest.mark.parametrize("step", [600, pytest.param(80, marks=pytest.mark.slow)])
def test_usual_kernels_compile_beforehand(step: int, seed: int) -> None:
    """Each run takes others of them: all are made by a few templates, of which ``make check-kernels`` compiles each."""
    texts = dict(itertools.islice(texts_of(usual_calls(is_hopper=True), TARGET).texts.items(), seed % step, None, step))
    assert texts
    assert warm.compile_all(texts, TARGET) == len(texts)
    assert warm.compile_all(texts, TARGET) == 0


def test_usual_kernels_that_are_all_there_are_not_looked_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [(f'extern "C" __global__ void nothing{n}() {{}}', ()) for n in range(3)]
    asked: list[str] = []
    monkeypatch.setattr(warm, "_usual_texts", lambda target: asked.append(target) or texts)
    monkeypatch.setattr("sys.argv", ["warm", "--architecture", TARGET])
    assert [warm.main(), warm.main()] == [0, 0]
    assert asked == [TARGET]
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first.startswith("3 kernels are usual, 3 of them")
        and second == "3 kernels are usual, and all of them are there"
    )
    compiler.path_of(texts[1][0], TARGET).unlink()
    assert warm.main() == 0
    assert len(asked) == 2 and compiler.is_kept(texts[1][0], TARGET)


def test_what_other_sources_had_as_usual_is_forgotten(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ('extern "C" __global__ void nothing() {}', ())
    compiler.compile_cubin(text[0], TARGET)
    usual_files.note(TARGET, [text])
    usual_files.note("sm_80", [])
    assert usual_files.kept(TARGET) == 1
    monkeypatch.setattr(usual_files, "_sources", lambda: "others")
    assert usual_files.kept(TARGET) == 0
    usual_files.note(TARGET, [text])
    assert usual_files.kept(TARGET) == 1
    assert len(list(cache.glob("usual-*"))) == 2


def test_the_bytes_on_the_disk_are_bounded_and_what_is_used_stays(
    cache: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE_BYTES", "0.25MiB")
    bound, compiled = 1 << 18, list[str]()

    def compile_it(source: str, options: Any) -> bytes:
        compiled.append(source)
        return rng.bytes(4096 + int(rng.integers(4096)))

    monkeypatch.setattr(compiler, "_compile", compile_it)
    cache.mkdir()
    unfinished = cache / "tmpdied"
    unfinished.write_bytes(b"a part")
    os.utime(unfinished, (1e9, 1e9))
    for number in range(200):
        compiler.compile_cubin(f"text {number}", TARGET)
        compiler.compile_cubin("used again and again", TARGET)
        assert sum(file.stat().st_size for file in cache.iterdir()) < bound * (1 + 2 / cubin_files.LOOKS) + 8192
    assert compiled.count("used again and again") == 1 and len(set(compiled)) == len(compiled) == 201
    assert not unfinished.exists()
    assert compiler.is_kept("text 199", TARGET) and not compiler.is_kept("text 0", TARGET)


def test_an_empty_file_is_compiled_anew(cache: Path) -> None:
    text = 'extern "C" __global__ void nothing() {}'
    compiler.compile_cubin(text, TARGET)
    (file,) = cache.iterdir()
    file.write_bytes(b"")
    assert compiler.compile_cubin(text, TARGET) == file.read_bytes() != b""


@pytest.mark.parametrize(
    "text", ["1048576", "1.5 MiB", "2GB", "512 mb", "1TiB", "4096 b", "0.25MiB"]
)  # fmt: skip
def test_sizes_are_read_as_the_gateway_reads_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE_BYTES", text)
    assert int(kernel_cache.most_kernel_bytes()) == TypeAdapter(ByteSize).validate_python(text)


def test_a_cache_whose_files_cannot_be_deleted_is_left_as_it_is(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual_files.note(TARGET, [])
    monkeypatch.setattr(usual_files, "_sources", lambda: "others")

    def refuse(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "unlink", refuse)
    usual_files.note(TARGET, [])
    assert len(list(cache.glob("usual-*"))) == 2
