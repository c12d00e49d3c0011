"""What processes used is written down, and the next one finds it: kernels, products, libraries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.driver")

from server.engine.cuda import first_products
from server.engine.cuda.gemm import cublaslt, neighbours, used_products
from server.engine.cuda.gemm.cublaslt import Algorithm, Problem, Side
from server.engine.cuda.runtime import modules, used_before
from server.engine.cuda.runtime.used_before import MOST_OF_KIND, UsedBefore
from telegrad_protocol import dtypes

from .cuda_registrations import registrations, withdraw

_ = registrations
withdraw()

TARGET = "sm_90"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A kernel cache of the test's own."""
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", str(tmp_path / "kernels"))
    _another_process()
    yield tmp_path / "kernels"
    _another_process()


def _another_process() -> None:
    used_before.used_before.cache_clear()


def test_the_next_process_finds_what_was_used_last_first(tmp_path: Path) -> None:
    first, beside = UsedBefore(tmp_path / "used"), UsedBefore(tmp_path / "used")
    first.note("kernel", "a f")
    beside.note("product", "[1]")
    beside.note("kernel", "b f")
    first.note("kernel", "a f")
    assert not first.of_kind("kernel"), "what a process uses itself is not loaded for it once more"
    found = UsedBefore(tmp_path / "used")
    assert found.of_kind("kernel") == ["b f", "a f"] and found.of_kind("product") == ["[1]"]
    assert len((tmp_path / "used").read_text().splitlines()) == 3, "nothing is written twice"


def test_a_log_is_bounded_by_kind(tmp_path: Path, seed: int) -> None:
    path, draw = tmp_path / "used", random.Random(seed)
    UsedBefore(path).note("library", "cudnn")
    names = [f"{draw.getrandbits(64):x}" for _ in range(3 * MOST_OF_KIND)]
    for start in range(0, len(names), MOST_OF_KIND):
        log = UsedBefore(path)
        for name in names[start : start + MOST_OF_KIND]:
            log.note("kernel", name)
        log.note("kernel", "one more")
        assert "one more" not in UsedBefore(path).of_kind("kernel"), "a process writes no more than the next one reads"
    found = UsedBefore(path)
    assert found.of_kind("kernel") == names[: -MOST_OF_KIND - 1 : -1] and found.of_kind("library") == ["cudnn"]
    assert len(path.read_text().splitlines()) == MOST_OF_KIND + 1, "what is of no use any more is gone from the disk"


def test_a_directory_that_cannot_be_written_to_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = UsedBefore(tmp_path / "file" / "used")
    log.note("kernel", "a f")
    assert not UsedBefore(tmp_path / "file" / "used").of_kind("kernel")


class Function:
    def __init__(self, name: str) -> None:
        self.ptr = name


class Driver:
    """What stands in for CuPy and for the driver: it says what was loaded, and which functions."""

    def __init__(self) -> None:
        self.loaded: list[bytes] = []
        self.functions: list[Any] = []
        self.cuda, self.function = self, self

    def Module(self) -> Any:
        driver = self

        class Module:
            def load(self, cubin: bytes) -> None:
                driver.loaded.append(cubin)

            def get_function(self, name: str) -> Function:
                return Function(name)

        return Module()

    def CUfunction(self, pointer: Any) -> Any:
        return pointer

    def cuFuncLoad(self, function: Any) -> None:
        self.functions.append(function)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(modules, "cp", driver)
    monkeypatch.setattr(modules, "driver", driver)
    monkeypatch.setattr(modules, "_beforehand", {})
    return driver


def test_kernels_of_the_last_process_are_loaded_beforehand_once(driver: Driver) -> None:
    text = 'extern "C" __global__ void first() {}\nextern "C" __global__ void second() {}'
    other = 'extern "C" __global__ void third() {}'
    module = modules.Module(text, TARGET, (), 0)
    assert [module.function(name).ptr for name in ("first", "second")] == ["first", "second"]
    modules.Module(other, TARGET, (), 0).function("third")
    assert len(driver.loaded) == 2
    _another_process()
    modules.load_beforehand(0, TARGET)
    assert len(driver.loaded) == 4 and sorted(driver.functions) == ["first", "second", "third"]
    modules.Module(text, TARGET, (), 0).function("second")
    assert len(driver.loaded) == 4, "what is there is taken"
    modules.Module(text, TARGET, (), 1).function("second")
    assert len(driver.loaded) == 5, "another device has its own"


def test_a_log_that_names_what_is_gone_or_no_file_of_the_cache_is_passed_over(driver: Driver, folder: Path) -> None:
    text = 'extern "C" __global__ void first() {}'
    modules.Module(text, TARGET, (), 0).function("first")
    (folder.parent / "secret.cubin").write_bytes(b"no kernel")
    log = used_before.used_before(TARGET)
    for line in ("../secret.cubin f", f"{'0' * 64}.cubin f", "", "words of another version"):
        log.note("kernel", line)
    _another_process()
    modules.load_beforehand(0, TARGET)
    assert len(driver.loaded) == 2 and driver.functions == ["first"]


class Library:
    """What stands in for products as cuBLASLt describes them: it says which were computed, and refuses some."""

    def __init__(self) -> None:
        self.computed: list[tuple[Problem, bytes]] = []
        self.refused: set[int] = set()
        self.biases: list[int] = []

    def __call__(self, device: int, problem: Problem, shares: bool = True) -> Any:
        library = self

        class Product:
            def checked(self, algorithm: Algorithm) -> Algorithm | None:
                return None if problem.d.rows in library.refused else algorithm

            def set_bias(self, pointer: int) -> None:
                library.biases.append(pointer)

            def call(self, algorithm: Algorithm) -> cublaslt.Call:
                def matmul(*arguments: int) -> None:
                    library.computed.append((problem, algorithm.opaque.tobytes()))

                return cublaslt.Call(matmul, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None)

        assert not shares, "another thread than the worker's shares no descriptors"
        return Product()


class Memory:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.ptr = 1 << 20

    def synchronize(self) -> None: ...


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(cublaslt, "is_available", lambda: True)
    monkeypatch.setattr(cublaslt, "version", lambda: "130100")
    for name, answer in {"architecture": TARGET, "multiprocessors": 132}.items():
        monkeypatch.setattr(used_products, name, lambda device, answer=answer: answer)
    monkeypatch.setattr(neighbours, "_KNOWN", {})
    monkeypatch.setattr(first_products, "Product", library)
    cuda = type("cuda", (), {"Memory": Memory, "Stream": Memory})
    monkeypatch.setattr(first_products, "cp", type("cp", (), {"cuda": cuda}))
    return library


def _problem(rows: int, **changes: Any) -> Problem:
    a, b, d = [Side(dtypes.bfloat16, rows, 96, rows) for _ in range(3)]
    return Problem(a, b, d, d, True, False, 2, cublaslt.COMPUTE_32F)._replace(**changes)


def test_products_of_the_last_process_are_computed_beforehand_and_their_algorithms_known(
    library: Library, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = Side(dtypes.float32, 64, 96, 64, 7, 16)
    problems = [
        _problem(64), _problem(640, epilogue=cublaslt.BIAS, alpha=0.5, bias_alignment=16),
        _problem(40, c=beside, beta=1.0), _problem(24, alpha=1 - 2j), _problem(1 << 20),
    ]  # fmt: skip
    algorithms = [Algorithm.of(rng.integers(0, 256, 64, np.uint8), 1 << 10) for _ in problems]
    for problem, algorithm in zip(problems, algorithms, strict=True):
        used_products.note(0, problem, algorithm)
    _another_process()
    library.refused = {40}
    first_products.compute_last(0)
    expected = {repr(problem): one.opaque.tobytes() for problem, one in zip(problems, algorithms, strict=True)}
    computed = {repr(problem): opaque for problem, opaque in library.computed}
    assert computed == {repr(one): expected[repr(one)] for one in (problems[0], problems[1], problems[3])}
    assert library.biases == [1 << 20]
    known = [neighbours._KNOWN.get((0, neighbours.neighbourhood(problem))) for problem in problems]
    assert [one is not None for one in known] == [True, True, False, True, True], "the large one is known all the same"
    monkeypatch.setattr(cublaslt, "version", lambda: "130200")
    assert not list(used_products.last(0)), "another version has other algorithms"


def test_lines_that_say_no_product_are_passed_over(library: Library, rng: np.random.Generator) -> None:
    used_products.note(0, _problem(64), Algorithm.of(rng.integers(0, 256, 64, np.uint8), 0))
    _another_process()
    log = used_before.used_before(TARGET)
    (line,) = log.of_kind("product")
    for broken in (
        line[: len(line) // 2],
        "{}",
        "[]",
        line.replace("bfloat16", "float8"),
        "[" * 500,
        line[:-1] + ",3]",
    ):
        log.note("product", broken)
    _another_process()
    assert len(list(used_products.last(0))) == 1


@pytest.mark.gpu
def test_a_process_that_begins_again_computes_the_same(cuda_host: Any, rng: np.random.Generator) -> None:
    """With kernels and products that were loaded beforehand, in this process, which has them already."""
    from server.engine.cuda import first_uses
    from server.engine.cuda.runtime.launch import _kernel, _module
    from tests.session.driver import Talk, call

    talk = Talk(cuda_host)
    x, y = (rng.standard_normal((130, 70), dtype=np.float32) for _ in range(2))

    def computed() -> Any:
        for number, elements in ((11, x), (12, y)):
            talk.upload(number, elements)
            assert talk.send(call("_to_copy", number - 10, number, device="cuda:0")) == []
        assert talk.send(call("t", 3, 2), call("mm", 4, 1, 3), call("exp", 5, 4), call("softmax", 6, 5, -1)) == []
        return talk.read(6)

    try:
        first = computed()
        _another_process()
        _kernel.cache_clear()
        _module.cache_clear()
        neighbours._KNOWN.clear()
        first_uses.begin(0).join()
        assert modules._beforehand and neighbours._KNOWN
        np.testing.assert_array_equal(computed(), first)
    finally:
        talk.session.close()
