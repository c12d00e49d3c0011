"""The compiled loops: when they are used, and conversions of every number of half precision."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import compiled


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process that has not looked yet, and an empty cache on the disk."""
    for name, value in (("_loaded", {}), ("_next_look", 0.0), ("_process", None), ("_SECONDS", 0.0)):
        monkeypatch.setattr(compiled, name, value)
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setenv(compiled.SETTING, "beside")
    return tmp_path


def test_numpy_serves_until_another_process_has_compiled_the_loops(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Compiling:
        status: int | None = None

        def poll(self) -> int | None:
            return self.status

        wait = poll

    process = Compiling()
    monkeypatch.setattr(compiled, "_compile_beside", lambda: started.append(1) or process)
    monkeypatch.setattr(compiled, "load", lambda name: name)
    assert compiled.kernels() is None
    assert compiled.kernels() is None
    assert started == [1]
    process.status = 0
    compiled.mark().parent.mkdir(parents=True)
    compiled.mark().touch()
    assert [compiled.kernels(), compiled.kernels("products")] == ["loops", "products"]


def test_loops_that_do_not_compile_are_done_without(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        def poll(self) -> int:
            return 1

    monkeypatch.setattr(compiled, "_compile_beside", Failed)
    assert compiled.kernels() is None
    assert compiled.kernels() is None
    assert compiled._next_look == float("inf")


def test_a_cache_that_cannot_be_used_costs_time_only(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise RuntimeError("no locator available")

    monkeypatch.setenv(compiled.SETTING, "wait")
    monkeypatch.setattr(compiled, "load", refuse)
    assert compiled.kernels() is None
    assert compiled._next_look == float("inf")


def test_the_operator_may_do_without_them(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.SETTING, "never")
    assert compiled.kernels() is None
    assert compiled._next_look > time.monotonic() + 1000


def test_every_number_of_half_precision_is_converted_as_pytorch_does(rng: Any) -> None:
    loops = compiled.kernels("elementwise")
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = np.empty(bits.size, np.float32)
    numbers = np.concatenate([rng.standard_normal(100_000), 10 ** rng.uniform(-45, 38.5, 100_000)]).astype(np.float32)
    for char, dtype, words in (("e", torch.float16, np.uint16), ("E", torch.bfloat16, np.int16)):
        back = np.empty(numbers.size, words)
        loops.widen[char](bits.view(words), wide)
        expected = torch.from_numpy(bits.view(np.int16)).view(dtype).float()
        torch.testing.assert_close(torch.from_numpy(wide), expected, rtol=0, atol=0, equal_nan=True)
        for source in (numbers, -numbers, np.resize(wide, numbers.size)):
            loops.narrow[char](source, back)
            result = torch.from_numpy(back.view(np.int16)).view(dtype)
            torch.testing.assert_close(result, torch.from_numpy(source).to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("name", "units"), [("exp", 0.9), ("tanh", 1.4)])
def test_exponentials_are_right_in_the_last_place(name: str, units: float) -> None:
    """Of numbers of all sizes; results may be subnormal."""
    bits = np.arange(0, 1 << 32, 9973, dtype=np.uint64).astype(np.uint32)
    numbers = bits.view(np.float32)[np.isfinite(bits.view(np.float32))]
    result = np.empty_like(numbers)
    getattr(compiled.kernels("elementwise"), name)["f"](numbers, result)
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(numbers.astype(np.float64))
        nearest = exact.astype(np.float32)
    within = np.isfinite(nearest)
    assert np.array_equal(result[~within], nearest[~within])
    assert np.array_equal(np.signbit(result), np.signbit(nearest))
    errors = np.abs(result[within] - exact[within]) / np.spacing(np.abs(nearest[within]))
    assert errors.max() < units


def test_modules_that_import_one_another_are_compiled_by_one_process() -> None:
    chain_of = {name: chain for chain in compiled.CHAINS for name in chain}
    folder = Path(compiled.__file__).parent

    def imported(name: str, met: set[str]) -> set[str]:
        """The modules that a module imports, itself among them, and those that these import."""
        if name not in met and (path := folder / f"{name.replace('.', '/')}.py").exists():
            met.add(name)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.level:
                    parents = name.split(".")[: -node.level]
                    imported(".".join([*parents, *filter(None, [node.module])]), met)
        return met

    for name, chain in chain_of.items():
        needed = imported(name, set()) & chain_of.keys()
        assert name in needed and needed <= set(chain), f"{name} needs {needed - set(chain)}"


@pytest.mark.parametrize("name", compiled.MODULES)
def test_machine_code_is_kept_by_what_does_not_change_from_process_to_process(name: str) -> None:
    """Numba keeps a function by the values of its outer names, and writes functions with a number of the process."""
    functions: list[Any] = []
    for value in vars(compiled.kernels(name)).values():
        functions += value.values() if isinstance(value, dict) else [value]
    kept = [function for function in functions if getattr(function, "signatures", None)]
    assert kept or name == "calls"
    for function in kept:
        for cell in function.py_func.__closure__ or ():
            assert isinstance(cell.cell_contents, int | float | str | np.generic), function.py_func.__qualname__
