"""Calls that differ in floats alone share one run on a device whose launches read numbers, and compute the same."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cuda.bindings.driver")

from server.engine import keys, lookup, plan
from server.engine.cuda.pointwise import pointwise
from server.engine.cuda.pointwise.expressions import EXPRESSIONS, OF_ANY_NUMBER
from server.engine.cuda.runtime import launch as launches_of_kernels
from server.engine.cuda.runtime import operands
from server.engine.device.launch_queue import LaunchQueue
from server.engine.operators import OPERATORS, Request
from server.engine.replay import varying
from telegrad_protocol import dtypes
from telegrad_protocol.errors import InplaceError
from tests.engine.cuda_registrations import on_a_gpu, registrations, withdraw  # noqa: F401
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c
from tests.support.reading_numbers import ReadingNumbers, reading_numbers

withdraw()
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 0.5, 1e-40, 1e300, math.inf, -math.inf, math.nan, 1, 2, True, 1 + 2j)


def _varying(draw: random.Random) -> float:
    """A float that varies, of any size that does."""
    while not varying.varies(number := draw.choice((-1, 1)) * draw.uniform(0.1, 9) * 10 ** draw.uniform(-28, 28)):
        pass
    return number


@pytest.fixture
def draw(rng: np.random.Generator) -> random.Random:
    return random.Random(int(rng.integers(1 << 32)))


@pytest.fixture(params=[pytest.param(True, marks=needs_calls_in_c, id="c"), pytest.param(False, id="python")])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadingNumbers]:
    """The factory, which is the CPU's for a few operations, with lookups in C and in Python."""
    if not request.param:
        monkeypatch.setattr(lookup, "new_lookup", None)
    with reading_numbers(keys.CPU) as factory:
        yield factory


def _results(name: str, numbers: list[Any], adapter: EngineAdapter) -> list[np.ndarray]:
    value = adapter.tensor(torch.tensor([1.5, -2.0, 0.0, 3e-3]))
    return [adapter.numpy(adapter.function(name)(value, number)) for number in numbers]


@pytest.mark.parametrize("name", ["mul", "div", "add", "gt", "rsub"])
def test_results_are_those_of_each_calls_own_number(name: str, reading: ReadingNumbers, draw: random.Random) -> None:
    numbers: list[Any] = [_varying(draw) for _ in range(12)]
    for special in SPECIAL[:-2]:
        numbers.insert(draw.randrange(len(numbers)), special)
    numbers += draw.choices(numbers, k=20)
    results = _results(name, numbers, EngineAdapter())
    for number, result in zip(numbers, results, strict=True):
        OPERATORS[name].clear_caches()
        (alone,) = _results(name, [number], EngineAdapter())
        assert result.dtype == alone.dtype and result.tobytes() == alone.tobytes(), number
        expected = getattr(torch, name)(torch.tensor([1.5, -2.0, 0.0, 3e-3]), number)
        np.testing.assert_allclose(result, expected.numpy(), rtol=1e-6)


def test_new_numbers_make_no_plans_and_fill_no_tables(reading: ReadingNumbers, draw: random.Random) -> None:
    adapter = EngineAdapter()
    _results("mul", [_varying(draw) for _ in range(3)], adapter)
    before, made, sizes = plan.plans_made(), reading.made, OPERATORS["mul"].cache_sizes()
    _results("mul", [_varying(draw) for _ in range(500)], adapter)
    assert (plan.plans_made(), reading.made, OPERATORS["mul"].cache_sizes()) == (before, made, sizes)
    assert sizes["plans"] == 2 and sizes["runs"] == 1


def test_a_number_that_comes_again_is_kept_by_itself_until_another_comes(reading: ReadingNumbers) -> None:
    adapter = EngineAdapter()
    _results("mul", [0.7] * 5, adapter)
    assert OPERATORS["mul"].cache_sizes()["runs"] == 1 and reading.made == 1
    _results("mul", [0.7, 0.3, 0.3, 0.7, 0.4], adapter)
    assert reading.made <= 3


def test_targets_are_written_with_each_calls_own_number(reading: ReadingNumbers, draw: random.Random) -> None:
    adapter = EngineAdapter()
    value = adapter.tensor(torch.ones(3))
    expected = np.ones(3, np.float32)
    for _ in range(20):
        number = draw.uniform(0.6, 0.9)
        adapter.function("mul_")(value, number)
        expected = expected * np.float32(number)
        assert adapter.numpy(value).tobytes() == expected.tobytes()
    assert reading.made == 3


def test_targets_that_share_memory_are_refused_whatever_the_number(reading: ReadingNumbers) -> None:
    adapter = EngineAdapter()
    value = adapter.functional.expand(adapter.tensor(torch.ones(1)), (3,))
    for number in (0.7, 0.3, 0.6):
        with pytest.raises(InplaceError, match="share memory"):
            adapter.function("mul_")(value, number)


def test_gradients_are_those_of_each_calls_own_number(reading: ReadingNumbers, draw: random.Random) -> None:
    adapter = EngineAdapter()
    leaf = adapter.tensor(torch.ones(3), requires_grad=True)
    for number in [draw.uniform(0.6, 0.9) for _ in range(6)] * 2:
        result = adapter.functional.mul(leaf, number)
        (gradient,) = adapter.grad([result], [adapter.tensor(torch.ones(3))], [leaf], False)
        assert adapter.numpy(gradient).tolist() == [np.float32(number)] * 3


def test_a_weight_that_comes_again_shares_what_its_gradients_need(reading: ReadingNumbers) -> None:
    adapter, operator = EngineAdapter(), OPERATORS["mul"]
    leaf = adapter.tensor(torch.ones(3), requires_grad=True)
    plans = []
    for number in (0.7, 0.3, 0.6, *[0.9] * 5, *[0.6, 0.9] * 5):
        result = adapter.functional.mul(leaf, number)
        plans.append((number, result.autograd.grad_fn.plan))
    assert len({id(made) for number, made in plans[-6:]}) == 2
    assert all(made.has_known_results for _, made in plans[-6:])
    assert not plans[2][1].has_known_results and operator.cache_sizes()["plans"] <= 4


@pytest.mark.parametrize("number", SPECIAL)
def test_numbers_that_mean_something_of_their_own_do_not_vary(number: Any) -> None:
    assert not varying.varies(number)
    for others in ((), (float,)):  # the class of a number may be there beside it
        assert varying.general_key((object(), dtypes.float32, 1, (number, 3, *others))) is None


@needs_calls_in_c
@pytest.mark.parametrize("kept", [True, False])
def test_c_finds_what_is_kept_by_the_general_key_that_python_makes(kept: bool, draw: random.Random) -> None:
    operator, adapter, runs = OPERATORS["mul"], EngineAdapter(), []
    operator.clear_caches()
    layout = lookup.Layout((0,), (1,))
    found = lookup.make_lookup(operator, layout, lambda *given: runs.append("uncached"), lambda op, args, key: key)
    value = adapter.tensor(torch.ones(2))
    before, operator.reads_numbers = operator.reads_numbers, keys.CUDA * kept
    try:
        general = varying.general_key(found((value, _varying(draw))))
        operator.runs[general] = lambda args: "found"
        for number in [*SPECIAL, *[_varying(draw) for _ in range(100)]]:
            is_found = found((value, number)) == "found"
            assert is_found == (kept and varying.varies(number))
    finally:
        operator.runs.clear()
        operator.reads_numbers = before
    assert not runs


def test_launches_that_wait_with_other_numbers_are_others(monkeypatch: pytest.MonkeyPatch, draw: random.Random) -> None:
    texts, adapter = _Texts(monkeypatch), EngineAdapter()
    value = adapter.tensor(torch.ones(5))
    meta, one, other = on_a_gpu(value.meta), _varying(draw), _varying(draw)
    launch = pointwise.prepare(
        Request(OPERATORS["mul"].op, value.backend, (meta, one), (meta,), dtypes.float32, reads_numbers=True)
    )
    assert launch is not None
    texts.queue.is_open = True
    for number in (one, one, other, -one):
        launch((value, number), (value,))
    first, again, *others = texts.queue.waiting
    texts.queue.waiting.clear()
    assert first == again and hash(first) == hash(again) and first not in others and len(others) == 2


class _Texts:
    """Kernels by their texts, and what they were started with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        self.calls: list[tuple[Any, ...]] = []
        driver = SimpleNamespace(launchKernel=lambda *arguments: self.calls.append(arguments))
        self.queue = LaunchQueue(lambda stream, work: None, lambda stream: True)
        monkeypatch.setattr(launches_of_kernels, "cp", SimpleNamespace(cuda=SimpleNamespace(driver=driver)))
        monkeypatch.setattr(pointwise, "load", lambda text, name: self._loaded(text))

    def _loaded(self, text: str) -> Any:
        self.texts.append(text)
        return launches_of_kernels.Kernel(SimpleNamespace(ptr=1), "kernel", self.queue)

    def started(self, request: Request, args: tuple[Any, ...]) -> tuple[str, list[bytes]] | None:
        """The text of the kernel of a request, and what its parameters point to in one launch."""
        launch = pointwise.prepare(request)
        if launch is None:
            return None
        launch(args, (args[0],))
        kinds = _declared(self.texts[-1])
        places = (ctypes.c_void_p * len(kinds)).from_address(self.calls[-1][-2])
        sizes = {"float": 4, "double": 8, "int": 4, "unsigned": 4}
        return self.texts[-1], [
            ctypes.string_at(place or 0, sizes.get(kind, 8)) for kind, place in zip(kinds, places, strict=True)
        ]


def _declared(text: str) -> list[str]:
    """The types of a kernel's parameters that are no structures."""
    begin = text.rindex("__launch_bounds__")
    inside = text[text.index("(", text.index(")", begin)) + 1 :]
    parameters = inside[: inside.index(")")].split(",")
    return ["pointer" if "*" in one else one.split()[-2] for one in parameters]


@pytest.mark.parametrize("in_c", [pytest.param(True, marks=needs_calls_in_c, id="c"), pytest.param(False, id="python")])
@pytest.mark.parametrize("name", sorted(OF_ANY_NUMBER))
def test_kernels_that_read_numbers_get_the_bytes_of_those_that_were_prepared_with_them(
    name: str, in_c: bool, monkeypatch: pytest.MonkeyPatch, draw: random.Random
) -> None:
    if not in_c:
        monkeypatch.setattr(launches_of_kernels, "kernel_launch", lambda *described: None)
        monkeypatch.setattr(operands, "operand_launch", lambda *described: None)
    texts, op, adapter = _Texts(monkeypatch), OPERATORS[name].op, EngineAdapter()
    for _ in range(20):
        dtype = draw.choice((torch.float32, torch.float64, torch.float16, torch.bfloat16))
        value = adapter.tensor(torch.ones(5, dtype=dtype))
        takes_number = [p.kind.name.startswith("tensor|scalar") or p.kind.name.startswith("scalar") for p in op.params]
        first = next((k for k, takes in enumerate(takes_number) if takes and k), None)
        assert first is not None, "an operation of any number takes one"
        args: list[Any] = []
        for k, param in enumerate(op.params):
            kind = param.kind.name
            if takes_number[k] and (k == first or draw.random() < 0.5) and k:
                args.append(_varying(draw))
            elif kind.startswith("tensor"):
                args.append(value)
            else:
                args.append(None if kind == "str?" else param.default)
        metas = tuple([on_a_gpu(arg.meta) if hasattr(arg, "meta") else arg for arg in args])
        out, compute = on_a_gpu(value.meta), op.compute_dtype(metas) if op.promotion else None
        made = [
            texts.started(Request(op, value.backend, metas, (out,), compute, reads), tuple(args)) for reads in (0, 1)
        ]
        assert made[0] == made[1] and made[0] is not None


def test_every_number_leads_to_the_same_text_as_any_other(draw: random.Random) -> None:
    for name in OF_ANY_NUMBER:
        names = [param.name for param in OPERATORS[name].op.params]
        for chosen_for in (dtypes.float32, dtypes.float64):
            plain = {param.name: param.default for param in OPERATORS[name].op.params}
            numbers = [dict.fromkeys(names, _varying(draw)) for _ in range(50)]
            for given in numbers:
                given.update({key: value for key, value in plain.items() if value is None or isinstance(value, str)})
            chosen = {EXPRESSIONS[name].choose(given, chosen_for, chosen_for).text for given in numbers}  # type: ignore[union-attr]
            assert len(chosen) == 1, name


def test_bits_are_those_of_the_type_that_the_kernel_reads(draw: random.Random) -> None:
    adapter = EngineAdapter()
    for _ in range(200):
        number = _varying(draw)
        for nbytes, kind in ((4, np.float32), (8, np.float64)):
            fired: list[tuple[Any, ...]] = []
            launch = operands.on_operands(
                adapter.tensor(torch.ones(1)).backend,
                lambda *given, fired=fired: fired.append(given),
                [(operands.NUMBER, 0, nbytes)],
            )
            launch((number,), ())
            assert struct.pack("<Q", fired[0][1])[:nbytes] == kind(number).tobytes()
