"""Measured choices that are kept on the disk, and programs that take them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.engine import context, keys
from server.engine import functional as F
from server.engine.cuda import families
from server.engine.cuda.gemm.kept_choices import KeptTuner, choices_on, path_of
from server.engine.programs.captures import Captures
from server.engine.programs.expansion import traced
from server.engine.programs.specialise import specialise
from server.engine.tuning import TUNERS, Result, Tuner
from server.engine.value import Value

from ..ops.adapters import EngineAdapter
from ..support.captures import simulate_captures
from .cuda_registrations import registrations, withdraw

_ = registrations
families.import_families()
withdraw()


def test_results_are_those_of_a_later_process(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "products" / "device.csv"
    first, other = KeptTuner(path), KeptTuner(path)
    results = {
        (f"GemmTunableOp_{n}", f"tn_{rng.integers(1, 999)}"): Result(f"cublaslt_{n}", float(n + 1)) for n in range(8)
    }
    for place, ((operation, parameters), result) in enumerate(results.items()):
        (first, other)[place % 2].note(operation, parameters, result)
    assert KeptTuner(path).results == results
    assert len(first.results) == len(other.results) == 4


@pytest.mark.parametrize("damaged", ["Gemm,tn_1", "Gemm,tn_1,cublas,soon", "Gemm,tn_1,cublas,0.1,more", "\0\xff", ""])
def test_damaged_lines_are_passed_over(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "device.csv"
    path.write_text(f"{damaged}\nGemm,tn_2,own,0.25\n{damaged}")
    assert KeptTuner(path).results == {("Gemm", "tn_2"): Result("own", 0.25)}


def test_what_cannot_be_kept_is_known_to_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the place of a directory")
    tuner = KeptTuner(tmp_path / "file" / "device.csv")
    tuner.note("Gemm", "tn_2", Result("own", 0.25))
    assert tuner.solution("Gemm", "tn_2") == "own"


def test_devices_and_versions_have_files_of_their_own() -> None:
    names = [["GPU_NAME", "one"], ["CUDA_RUNTIME", "13000"]]
    assert path_of(names) == path_of([*names])
    assert path_of(names) != path_of([names[0], ["CUDA_RUNTIME", "13010"]])


def _layers(x: Value, *weights: Value) -> Value:
    for weight in weights:
        x = F.relu(F.linear(x, weight))
    return x


def _drawn(adapter: EngineAdapter, seed: int, count: int) -> list[Value]:
    import torch

    torch.manual_seed(seed)
    return [adapter.tensor(torch.randn(96, 96) / 10) for _ in range(count)]


def _captures(values: Sequence[Value], tunes: bool) -> Captures:
    metas = [value.meta for value in values]
    return Captures(specialise(traced(_layers, metas), metas), values[0].backend, tunes=tunes)


def _run(captures: Captures, values: Sequence[Value]) -> Any:
    execution = captures.begin(values)
    assert execution.advance()
    return execution.outputs()[0]


@pytest.mark.parametrize("tunes", [True, False])
def test_products_are_chosen_where_a_program_is_to_be_captured(
    adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch, tunes: bool
) -> None:
    """The execution before a capture has the device's choices; what comes before it, and after, has the session's."""
    tuner, seen = Tuner(), []
    simulate_captures(monkeypatch)
    monkeypatch.setitem(TUNERS, keys.CPU, lambda backend: tuner)
    values = _drawn(adapter, seed, 3)
    captures = _captures(values, tunes)
    backend = values[0].backend
    capture = type(backend).capture

    def noting(self: Any, run: Any) -> Any:
        seen.append(context.current.switches.tuner)
        return capture(self, run)

    monkeypatch.setattr(type(backend), "capture", noting)
    before = context.current.switches
    for _ in range(30):
        _run(captures, values)
    assert context.current.switches is before
    assert seen and set(seen) == {tuner if tunes else None}


def test_a_session_that_tunes_by_itself_keeps_its_choices(
    adapter: EngineAdapter, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_captures(monkeypatch)
    monkeypatch.setitem(TUNERS, keys.CPU, lambda backend: Tuner())
    before = context.current.switches
    context.current.switches = before.with_tuner(Tuner())
    try:
        assert not _captures(_drawn(adapter, seed, 2), True).tunes
    finally:
        context.current.switches = before


@pytest.mark.gpu
def test_a_captured_program_has_the_fastest_products(
    cuda_device: str, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", str(tmp_path))
    adapter = EngineAdapter(cuda_device)
    values = _drawn(adapter, seed, 3)
    tuned, plain = _captures(values, True), _captures(values, False)
    for _ in range(30):
        mine, other = (adapter.numpy(_run(captures, values)) for captures in (tuned, plain))
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    with values[0].backend.as_current():
        results = choices_on(values[0].backend).results
        assert results
        (kept,) = tmp_path.glob("products-*.csv")
        assert KeptTuner(kept).results.keys() == results.keys()
