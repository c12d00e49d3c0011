"""What new products take over from others, algorithms and descriptors: with stand-ins for cuBLASLt."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from server.engine import context
from server.engine.context import Context
from server.engine.cuda.gemm import cublaslt, gemm, neighbours
from server.engine.cuda.gemm.cublaslt import Algorithm, Problem, Side
from server.engine.cuda.gemm.layout import packed
from server.engine.cuda.gemm.neighbours import Algorithms, neighbourhood
from server.engine.cuda.gemm.product import Product
from server.engine.cuda.runtime.provisional import ASKED_AT
from server.engine.cuda.texts import DescribedDevice
from server.engine.replay.captures import settling
from telegrad_protocol import dtypes


class Described:
    """A product as cuBLASLt holds it: proposes an algorithm for its sizes, and takes those of others or not."""

    def __init__(self, algorithm: object, refused: tuple[object, ...] = ()) -> None:
        self._algorithm, self._refused = algorithm, refused
        self.asked = 0

    def algorithms(self, count: int) -> list[Algorithm]:
        self.asked += 1
        return [Algorithm(self._algorithm, 0, 0)]

    def checked(self, algorithm: Algorithm) -> Algorithm | None:
        return None if algorithm.opaque in self._refused else algorithm


class Device(DescribedDevice):
    """A device that captures, or not."""

    is_capturing = False
    settles = False


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(neighbours, "_KNOWN", {})
    monkeypatch.setattr(neighbours.used_products, "note", lambda *_: None)
    yield


def _problem(rows: int, columns: int = 64, inner: int = 96, **changes: Any) -> Problem:
    a, b = Side(dtypes.float32, columns, inner, columns), Side(dtypes.float32, inner, rows, inner)
    d = Side(dtypes.float32, columns, rows, columns)
    return Problem(a, b, d, d, False, False, 1, cublaslt.COMPUTE_32F)._replace(**changes)


def _found(described: Described, problem: Problem, borrows: bool = True) -> tuple[object, int]:
    algorithms = Algorithms(borrows)
    algorithm = algorithms.first(0, described, problem)  # type: ignore[arg-type]
    assert algorithm is not None
    return algorithm.opaque, algorithms.borrowed


@pytest.mark.parametrize(("rows", "other"), [(1 << 10, 1535), (1536, 2047), (96, 127)])
def test_sizes_that_differ_by_less_than_a_half_are_asked_for_once(rows: int, other: int) -> None:
    second = Described("second")
    assert _found(Described("first"), _problem(rows)) == ("first", 0)
    assert _found(second, _problem(other)) == ("first", 1)
    assert not second.asked


@pytest.mark.parametrize(
    "other",
    [
        _problem(1536), _problem(1023), _problem(1024, inner=512), _problem(1024, columns=16), _problem(1024, beta=1.0),
        _problem(1024, compute=cublaslt.COMPUTE_32F_FAST_TF32), _problem(1024, epilogue=cublaslt.BIAS),
        _problem(1024, reductions=cublaslt.EXACT_REDUCTION), _problem(1024, transposes_a=True),
        _problem(1024, a=Side(dtypes.float32, 64, 96, 64, alignment=4)),
        _problem(1024, a=Side(dtypes.float32, 64, 96, 65)), _problem(1024, columns=65), _problem(1024, batch=2),
    ],
)  # fmt: skip
def test_what_is_no_neighbour_is_asked_for(other: Problem) -> None:
    assert neighbourhood(other) != neighbourhood(_problem(1024))
    _found(Described("first"), _problem(1024))
    assert _found(Described("second"), other) == ("second", 0)


def test_an_algorithm_that_does_not_take_the_sizes_is_asked_for() -> None:
    _found(Described("first"), _problem(1024))
    assert _found(Described("second", refused=("first",)), _problem(1025)) == ("second", 0)


def test_a_launch_that_comes_again_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made, run = _multiplication(monkeypatch)
    for _ in range(ASKED_AT + 2):
        run()
    assert made == ["borrowed"] * (ASKED_AT - 1) + ["own"] * 3


def test_a_launch_is_asked_for_before_it_is_captured_and_not_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    made, run = _multiplication(monkeypatch, device)
    device.is_capturing = True
    for _ in range(ASKED_AT + 2):
        run()
    assert set(made) == {"borrowed"}
    device.is_capturing = False
    with settling(device, True):  # type: ignore[arg-type]
        run()
    assert made[-1] == "own"


def test_sessions_that_want_the_same_results_in_every_run_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, run = _multiplication(monkeypatch)
    run()
    context.current.switches = context.current.switches.with_setting("deterministic_algorithms", True)
    run()
    assert made == ["borrowed", "own"]


def _multiplication(monkeypatch: pytest.MonkeyPatch, device: Any = None) -> tuple[list[str], Any]:
    """A product that has neighbours, and what its launches are made by."""
    made: list[str] = []

    def solve(backend: Any, product: Any, switches: Any, solution: Any, algorithms: Algorithms | None = None) -> Any:
        if algorithms is not None and not switches.deterministic_algorithms:
            algorithms.borrowed += 1
            return lambda args, outs: made.append("borrowed")
        return lambda args, outs: made.append("own")

    monkeypatch.setattr(gemm, "solution_launch", solve)
    monkeypatch.setattr(context, "current", Context({}))
    matrix = packed(dtypes.float32, 1, 8, 8)
    launch = gemm.multiplication(device or Device(), Product(matrix, matrix, matrix))
    assert launch is not None
    return made, lambda: launch((), ())


class Library:
    """Stands for cuBLASLt's bindings: numbers descriptors, and keeps what was set of those that are not destroyed."""

    def __init__(self) -> None:
        self.made = 0
        self.held: dict[int, dict[str, int]] = {}

    def _make(self, *_: int) -> int:
        self.made += 1
        self.held[self.made] = {}
        return self.made

    def _destroy(self, number: int) -> None:
        del self.held[number]

    def _set(self, number: int, attribute: str, address: int, size: int) -> None:
        self.held[number][attribute] = int.from_bytes(ctypes.string_at(address, size), "little", signed=True)

    create = matmul_desc_create = matrix_layout_create = _make
    matmul_desc_destroy = matrix_layout_destroy = _destroy
    matmul_desc_set_attribute = matrix_layout_set_attribute = _set


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    library, caches = Library(), (cublaslt._operation, cublaslt._layout, cublaslt._handle)
    names = ("TRANSA", "TRANSB", "EPILOGUE", "BIAS_POINTER", "BATCH_COUNT", "STRIDED_BATCH_OFFSET")
    attributes = SimpleNamespace(**{name: name for name in names})
    for name, value in (("lt", library), ("_OPERATION", attributes), ("_LAYOUT", attributes)):
        monkeypatch.setattr(cublaslt, name, value)
    for cache in caches:
        cache.cache_clear()
    yield library
    for cache in caches:
        cache.cache_clear()


def test_products_share_what_describes_them(library: Library) -> None:
    products = [cublaslt.Product(0, _problem(1024))]
    made = library.made
    products.append(cublaslt.Product(0, _problem(1024)))
    assert library.made == made, "nothing of it is new"
    products.append(cublaslt.Product(0, _problem(1025)))
    assert library.made == made + 2, "what has another number of rows: an operand and the result"
    products.append(cublaslt.Product(0, _problem(1024, batch=3)))
    assert library.made == made + 5
    cublaslt._layout.cache_clear()
    assert len(library.held) == library.made, "products hold what describes them"
    products.clear()
    cublaslt._operation.cache_clear()
    assert len(library.held) == 1, "the handle is left"


def test_a_bias_is_set_anew_where_another_product_has_set_its_own(library: Library) -> None:
    first, second = (cublaslt.Product(0, _problem(rows, epilogue=cublaslt.BIAS)) for rows in (1024, 1025))
    for product, bias in ((first, 0x1000), (second, 0x2000), (first, 0x1000)):
        product.set_bias(bias)
        assert [kept["BIAS_POINTER"] for kept in library.held.values() if "BIAS_POINTER" in kept] == [bias]
