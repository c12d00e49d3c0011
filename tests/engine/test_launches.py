"""Prepared launches hand the driver what they were prepared with: geometry, stream, each parameter in its place.

They do so in C and in Python.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cuda.bindings.driver")

from server.engine.cuda.pointwise.pointwise import launcher
from server.engine.cuda.runtime import launch as launches_of_kernels
from server.engine.cuda.runtime import operands
from server.engine.cuda.runtime.launch import Kernel
from server.engine.cuda.runtime.operands import ARGUMENT, CONSTANT, RESULT, WORKSPACE, on_operands, queued
from server.engine.device.launch_queue import LaunchQueue
from server.engine.in_c import values as values_in_c
from server.engine.value import Backend
from tests.engine.cuda_registrations import withdraw
from tests.ops.adapters import EngineAdapter
from tests.support.compilers import needs_calls_in_c
from tests.support.parameters import parameters_at

withdraw()
_FORMS = {"int": "i", "unsigned": "I", "i64": "q", "u64": "Q", "float": "f", "double": "d", "pointer": "Q"}


@pytest.fixture(
    autouse=True, params=[pytest.param(True, marks=needs_calls_in_c, id="c"), pytest.param(False, id="python")]
)
def in_c(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether launches are objects of C."""
    if not request.param:
        for module, name in (
            (launches_of_kernels, "kernel_launch"),
            (operands, "operand_launch"),
            (operands, "queued_call"),
        ):
            monkeypatch.setattr(module, name, lambda *described: None)
    return bool(request.param)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the driver is asked to launch, the parameters' addresses last but one."""
    calls: list[tuple[Any, ...]] = []
    driver = SimpleNamespace(launchKernel=lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(launches_of_kernels, "cp", SimpleNamespace(cuda=SimpleNamespace(driver=driver)))
    return calls


def _parameters(call: tuple[Any, ...], formats: Sequence[str]) -> list[Any]:
    """The parameters, read as a kernel of this signature reads them."""
    return parameters_at(call[-2], formats)


def _launches() -> LaunchQueue:
    return LaunchQueue(lambda stream, work: None, lambda stream: True)


@pytest.mark.parametrize("count", range(9))
def test_every_number_of_pointers_arrives_before_the_constants(calls: list[tuple[Any, ...]], count: int) -> None:
    kernel = Kernel(SimpleNamespace(ptr=99), "kernel", _launches())
    constants: list[tuple[str, Any] | bytes] = [("i64", -5), ("int", 7), struct.pack("=d", 0.5)]
    launch = kernel.prepare((3, 2), 128, "P" * count, constants, shared=64)
    for first in (1 << 40, 1 << 50):
        pointers = list(range(first, first + count))
        launch(17, *pointers)
        assert calls[-1][:9] == (99, 3, 2, 1, 128, 1, 1, 64, 17)
        assert calls[-1][-1] == 0
        assert _parameters(calls[-1], "Q" * count + "qid") == [*pointers, -5, 7, 0.5]


def _constant(rng: np.random.Generator) -> tuple[Any, str, Any]:
    """A constant of any kind, as it is given, and as the kernel reads it: its format and its value."""
    kind = [*_FORMS, "bytes"][rng.integers(len(_FORMS) + 1)]
    if kind == "bytes":
        data = rng.bytes(int(rng.integers(1, 70)))
        return data, f"{len(data)}s", data
    form = _FORMS[kind]
    bits = 8 * struct.calcsize(f"={form}") - (form in "iq")
    number = float(rng.integers(-1000, 1000)) / 8 if form in "fd" else int(rng.integers(1 << 31)) % (1 << bits)
    return (kind, number), form, number


def test_constants_of_all_kinds_lie_where_the_kernel_reads_them(
    calls: list[tuple[Any, ...]], rng: np.random.Generator
) -> None:
    kernel = Kernel(SimpleNamespace(ptr=99), "kernel", _launches())
    for _ in range(200):
        made = [_constant(rng) for _ in range(int(rng.integers(0, 9)))]
        varying, pointers = int(rng.integers(0, 8)), [int(n) for n in rng.integers(1 << 40, size=8)]
        launch = kernel.prepare(1, (32, 2), "P" * varying, [given for given, _, _ in made])
        launch(0, *pointers[:varying])
        found = _parameters(calls[-1], ["Q"] * varying + [form for _, form, _ in made])
        assert found == [*pointers[:varying], *[value for _, _, value in made]]
        assert calls[-1][1:7] == (1, 1, 1, 32, 2, 1)


def test_numbers_among_the_pointers_keep_their_types(calls: list[tuple[Any, ...]]) -> None:
    launch = Kernel(SimpleNamespace(ptr=1), "kernel", _launches()).prepare(1, 32, "PdiP", [("float", 1.5)])
    launch(0, 1 << 40, -0.25, -3, 1 << 41)
    assert _parameters(calls[-1], "QdiQf") == [1 << 40, -0.25, -3, 1 << 41, 1.5]


def test_a_table_of_addresses_is_one_parameter(calls: list[tuple[Any, ...]]) -> None:
    launch = Kernel(SimpleNamespace(ptr=1), "kernel", _launches()).prepare(1, 32, "P", [("i64", 4)], table=3)
    launch(0, 10, 11, 12, 13)
    addresses = (ctypes.c_void_p * 3).from_address(calls[-1][-2])
    assert struct.unpack("=3Q", ctypes.string_at(addresses[0] or 0, 24)) == (10, 11, 12)
    assert [struct.unpack("=Q", ctypes.string_at(address or 0, 8))[0] for address in addresses[1:]] == [13, 4]


def _at(pointer: int) -> Any:
    return SimpleNamespace(storage=SimpleNamespace(block=SimpleNamespace(pointer=pointer)))


@pytest.mark.parametrize("shift", [0, 8])
@pytest.mark.parametrize("count", range(6))
def test_a_launcher_finds_the_result_and_the_operands_where_they_begin(count: int, shift: int) -> None:
    fired: list[tuple[int, ...]] = []
    positions, offsets = [2, 0, 4, 1, 3][:count], [shift * k for k in range(count + 1)]
    args, backend = tuple([_at(100 * (k + 1)) for k in range(5)]), SimpleNamespace(stream=5)
    launch = launcher(lambda *given: fired.append(given), backend, positions, offsets, None)  # type: ignore[arg-type]
    launch(args, (_at(7000),))
    expected = [100 * (position + 1) + offset for position, offset in zip(positions, offsets[1:], strict=True)]
    assert fired == [(5, 7000, *expected)]


def test_a_launcher_may_write_over_an_argument() -> None:
    fired: list[tuple[int, ...]] = []
    backend: Any = SimpleNamespace(stream=5)
    launcher(lambda *given: fired.append(given), backend, [1], [16, 4], 0)((_at(100), _at(200)), ())
    assert fired == [(5, 116, 204)]


@pytest.mark.parametrize("count", range(1, 9))
def test_a_launch_that_waits_is_made_later_with_what_it_was_given(calls: list[tuple[Any, ...]], count: int) -> None:
    launches = _launches()
    launch = Kernel(SimpleNamespace(ptr=1), "kernel", launches).prepare(1, 32, "P" * count)
    given = [list(range(first, first + count)) for first in (100, 200)]
    launches.is_open = True
    for stream, pointers in enumerate(given):
        launch(stream, *pointers)
    launches.is_open = False
    assert not calls
    run = launches.waiting[:]
    for entry, pointers in zip(run, given, strict=True):
        launches.waiting[:] = [entry]
        launches.flush()
        assert _parameters(calls[-1], "Q" * count) == pointers
    assert [call[8] for call in calls] == [0, 1]


def test_a_kernel_that_takes_numbers_does_not_wait(calls: list[tuple[Any, ...]]) -> None:
    launches = _launches()
    kernel = Kernel(SimpleNamespace(ptr=1), "kernel", launches)
    plain, numbers = kernel.prepare(1, 32, "P"), kernel.prepare(2, 32, "Pd")
    launches.is_open = True
    plain(5, 100)
    numbers(5, 200, -0.0)
    launches.is_open = False
    assert [call[1] for call in calls] == [1, 2] and not launches.waiting


class _Backend(Backend):
    """A backend that has a stream and scratch memory, and nothing else."""

    def __init__(self) -> None:
        self.stream = 5

    def workspace(self, nbytes: int) -> Any:
        return SimpleNamespace(pointer=1000 * nbytes)


def test_launches_on_values_find_where_these_begin(calls: list[tuple[Any, ...]], rng: np.random.Generator) -> None:
    adapter, backend, launches = EngineAdapter("cpu"), _Backend(), _launches()
    values = [adapter.tensor(torch.ones(n)) for n in (1, 2, 300)]
    for _ in range(200):
        args = tuple([[*values, None][rng.integers(4)] for _ in range(3)])
        outs = tuple([values[rng.integers(3)] for _ in range(2)])
        count, expected, places = int(rng.integers(6)), [], []
        for _ in range(count):
            source, offset = int(rng.integers(4)), int(rng.integers(3)) * 4
            number = int(rng.integers((3, 2, 1, 1)[source]))
            places.append((source, number, offset))
            value = (args if source == ARGUMENT else outs)[number]
            of_value = 0 if value is None else value.storage.block.pointer + offset
            expected.append({ARGUMENT: of_value, RESULT: of_value, CONSTANT: offset, WORKSPACE: 1000 * offset}[source])
        fired: list[tuple[Any, ...]] = []
        on_operands(backend, lambda *given, fired=fired: fired.append(given), places)(args, outs)
        assert fired == [(5, *expected)]
        kernel = Kernel(SimpleNamespace(ptr=1), "kernel", launches).prepare(1, 32, "P" * count)
        on_operands(backend, kernel, places)(args, outs)
        assert calls[-1][8] == 5 and _parameters(calls[-1], "Q" * count) == expected


def test_an_error_of_a_launch_is_the_callers(in_c: bool) -> None:
    adapter = EngineAdapter("cpu")

    def fire(*given: int) -> None:
        raise ZeroDivisionError

    launch = on_operands(_Backend(), fire, [(RESULT, 0, 0)])
    with pytest.raises(ZeroDivisionError):
        launch((), (adapter.tensor(torch.ones(1)),))
    with pytest.raises(IndexError):
        launch((), ())


@pytest.mark.parametrize("with_first", [False, True])
def test_a_call_of_a_library_waits_and_is_made_later_with_what_it_was_given(with_first: bool) -> None:
    launches, told, made = _launches(), [], []
    before = told.append if with_first else None
    call = queued(launches, lambda *given: made.append(given), (7, None, 8, None, 9, None), (5, 1, 3), before)
    call(1, 2, 3, 4)
    launches.is_open = True
    call(11, 12, 13, 14)
    launches.is_open = False
    assert made == [(7, 2, 8, 3, 9, 1)] and told == ([4] if with_first else [])
    launches.flush()
    assert made[1:] == [(7, 12, 8, 13, 9, 11)] and told[1:] == ([14] if with_first else [])


def test_launches_that_wait_are_the_same_where_all_is_the_same(calls: list[tuple[Any, ...]]) -> None:
    launches = _launches()
    kernel = Kernel(SimpleNamespace(ptr=1), "kernel", launches)
    one, other = kernel.prepare(1, 32, "P"), kernel.prepare(1, 32, "P")
    launches.is_open = True
    for launch, pointer in ((one, 5), (one, 5), (one, 6), (other, 5)):
        launch(0, pointer)
    first, again, *others = launches.waiting
    assert first == again and hash(first) == hash(again) and first not in others
    launches.waiting.clear()
    assert one.kernel is kernel  # type: ignore[attr-defined]


def test_modifications_and_addresses_of_many_tensors_are_the_same_in_c_and_in_python(rng: np.random.Generator) -> None:
    adapter = EngineAdapter("cpu")
    values = [adapter.tensor(torch.ones(n)) for n in (1, 2, 300)]
    for _ in range(50):
        held = tuple([[*values, None][n] for n in rng.integers(4, size=3)])
        args, places = (values[rng.integers(3)], held, None, ()), tuple(map(int, rng.permutation(4)[: rng.integers(5)]))
        before = [value.storage.version for value in values]
        values_in_c._note_writes_in_python(args, places)
        expected = [value.storage.version - was for value, was in zip(values, before, strict=True)]
        between = [value.storage.version for value in values]
        values_in_c.note_writes(args, places)
        assert [value.storage.version - was for value, was in zip(values, between, strict=True)] == expected
    assert values_in_c.beginnings_of(values) == values_in_c._beginnings_in_python(values)
