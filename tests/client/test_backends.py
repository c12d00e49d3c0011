"""Switches under ``torch.backends``' names, and tunable operations: what is set, what the server is told, files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.worker.host import Host
from telegrad_protocol.errors import ArgumentError


@pytest.fixture
def host() -> Host:
    return Host(["cpu"])


@pytest.fixture
def lib(host: Host) -> Iterator[Any]:
    """telegrad, with every switch as it was before afterwards."""
    import telegrad as tg
    from telegrad._session import settings

    before = settings.snapshot()
    try:
        with tg.connect(in_process=host):
            yield tg
    finally:
        settings.restore(before)


def _context(host: Host, tg: Any) -> Any:
    tg.cuda.synchronize()
    return next(reversed(host.sessions.values())).state.context


def test_the_server_is_told_what_is_set_in_order(host: Host, lib: Any) -> None:
    lib.backends.cuda.matmul.allow_tf32 = True
    lib.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    lib.backends.cuda.preferred_blas_library("cublas")
    lib.backends.cudnn.allow_tf32 = False
    lib.use_deterministic_algorithms(True)
    context = _context(host, lib)
    assert context.switches.allow_tf32
    assert not context.switches.allow_bf16_reduced_precision_reduction
    assert context.switches.allow_fp16_reduced_precision_reduction
    assert context.switches.preferred_blas_library == "cublas"
    assert context.switches.deterministic_algorithms
    assert not context.cudnn.allow_tf32
    lib.backends.cuda.matmul.allow_tf32 = False
    assert not _context(host, lib).switches.allow_tf32


def test_cudnn_has_its_switches_and_no_others(host: Host, lib: Any) -> None:
    cudnn = lib.backends.cudnn
    assert (cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark) == (True, False, False)
    cudnn.benchmark = True
    assert _context(host, lib).cudnn.benchmark
    with pytest.raises(ArgumentError, match="benchmark: expected a bool, got 1"):
        cudnn.benchmark = 1
    with pytest.raises(AttributeError, match=r"no switch 'benchmarks'; there are .*, enabled"):
        cudnn.benchmarks = True


def test_later_sessions_begin_with_what_was_set(host: Host, lib: Any) -> None:
    lib.set_float32_matmul_precision("high")
    lib.cuda.tunable.enable()
    with lib.connect(in_process=host):
        context = _context(host, lib)
        assert context.switches.allow_tf32
        assert context.switches.tuner is context.tuner


def test_the_precision_of_float32_and_tf32_are_one_switch(lib: Any) -> None:
    matmul = lib.backends.cuda.matmul
    assert lib.get_float32_matmul_precision() == "highest"
    for precision in ("high", "medium"):
        lib.set_float32_matmul_precision(precision)
        assert matmul.allow_tf32
        assert lib.get_float32_matmul_precision() == precision
    matmul.allow_tf32 = False
    assert lib.get_float32_matmul_precision() == "highest"


def test_positions_that_a_switch_does_not_have_are_refused(lib: Any) -> None:
    with pytest.raises(ArgumentError, match="expected a bool"):
        lib.backends.cuda.matmul.allow_tf32 = 1
    with pytest.raises(ArgumentError, match="unknown library"):
        lib.backends.cuda.preferred_blas_library("mkl")
    with pytest.raises(ArgumentError, match="highest, high, medium"):
        lib.set_float32_matmul_precision("low")
    with pytest.raises(ArgumentError, match="0 or more"):
        lib.cuda.tunable.set_max_tuning_duration(-1)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = lib.backends.cudnn.fastest
    with pytest.raises(TypeError, match="argument 'mode' must be bool, not str"):
        lib.use_deterministic_algorithms("False")
    for put in (lib.cuda.tunable.enable, lib.cuda.tunable.tuning_enable):
        with pytest.raises(ArgumentError, match="expected a bool, got 'False'"):
            put("False")


def test_a_limit_that_does_not_travel_is_refused_and_the_session_goes_on(host: Host, lib: Any) -> None:
    for limit in (lib.cuda.tunable.set_max_tuning_duration, lib.cuda.tunable.set_max_tuning_iterations):
        with pytest.raises(ArgumentError, match="64 bits"):
            limit(1 << 70)
    assert (lib.zeros(2) + 1).tolist() == [1.0, 1.0]


def test_tuning_is_set_as_pytorch_has_it(host: Host, lib: Any) -> None:
    tunable = lib.cuda.tunable
    assert not tunable.is_enabled()
    assert tunable.tuning_is_enabled()
    assert (tunable.get_max_tuning_duration(), tunable.get_max_tuning_iterations()) == (30, 100)
    tunable.enable()
    tunable.tuning_enable(False)
    tunable.set_max_tuning_duration(7)
    tunable.set_max_tuning_iterations(9)
    tuner = _context(host, lib).tuner
    assert (tuner.tunes, tuner.max_duration_ms, tuner.max_iterations) == (False, 7, 9)
    tunable.enable(False)
    assert _context(host, lib).switches.tuner is None


def test_results_are_written_and_read(lib: Any, tmp_path: Path) -> None:
    tunable = lib.cuda.tunable
    tunable.set_filename(str(tmp_path / "results.csv"))
    assert tunable.get_filename() == str(tmp_path / "results.csv")
    assert not tunable.write_file()
    validators = "".join(f"Validator,{name},{value}\n" for name, value in tunable.get_validators())
    (tmp_path / "known.csv").write_text(validators + "GemmTunableOp_float32_NN,nn_8_8_8_ld_8_8_8,cublas,0.25\n")
    assert tunable.read_file(str(tmp_path / "known.csv"))
    expected = ("GemmTunableOp_float32_NN", "nn_8_8_8_ld_8_8_8", "cublas", 0.25)
    assert tunable.get_results() == (expected,)
    assert tunable.write_file()
    assert (tmp_path / "results.csv").read_text() == (tmp_path / "known.csv").read_text()


def test_results_for_something_else_are_not_taken_over(lib: Any, tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    file.write_text("Validator,GPU_NAME,another\nGemmTunableOp_float32_NN,nn_8_8_8_ld_8_8_8,cublas,0.25\n")
    assert not lib.cuda.tunable.read_file(str(file))
    assert lib.cuda.tunable.get_results() == ()
    file.write_text("what is this\n")
    with pytest.raises(ArgumentError, match="line 1"):
        lib.cuda.tunable.read_file(str(file))
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArgumentError, match="is not text"):
        lib.cuda.tunable.read_file(str(file))


def test_the_fastest_way_is_chosen_and_slow_ones_are_not_measured_for_long() -> None:
    from server.engine.tuning import Tuner

    runs = {"slow": 0, "fast": 0, "slower": 0}
    times = {"slow": 2.0, "fast": 0.5, "slower": 9.0}

    def way(name: str) -> Any:
        def measure(count: int) -> float:
            runs[name] += count
            return times[name] * count

        return measure

    tuner = Tuner()
    tuner.set(True, 10, 100)
    found = tuner.fastest({name: way(name) for name in times})
    assert found == ("fast", 0.5)
    assert runs == {"slow": 9, "fast": 24, "slower": 4}


def test_a_server_without_a_gpu_has_no_cudnn(tg: Any) -> None:
    assert tg.backends.cudnn.version() is None
    assert not tg.backends.cudnn.is_available()
    assert tg.backends.cudnn.graph_stats() == {"version": 0, "graphs": 0, "refused": 0, "seconds": 0.0}
