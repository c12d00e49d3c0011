"""What usual programs ask of a GPU is compiled beforehand: looked at without one, by what they ask of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

import telegrad as tg
from benchmarks import models
from benchmarks.models import Setting
from server.engine import keys, plan
from server.engine.array_library.dtypes import HALVES
from server.engine.cuda.families import import_families
from server.engine.cuda.runtime.launch import collecting
from server.engine.cuda.texts import DEVICE, Call, DescribedDevice, ask, call
from server.engine.cuda.usual_calls import usual_texts
from server.engine.operators import OPERATORS, Request
from server.worker.host import Host
from telegrad_protocol import dtypes
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.meta import Meta

from .cuda_registrations import on_a_gpu, registrations, withdraw
from .usual_programs import PROGRAMS, Program, Sizes, drawn
from .usual_programs_by_hand import BY_HAND

_ = registrations
import_families()
withdraw()

TARGET = "sm_90"
GPT = Setting("a GPT", 1, 128, 4, 24, 3)
Asked = tuple[str, Any, Any]
"""An operation's name, its arguments and its results."""


def _repeated(make: Callable[[], Callable[[], Any]]) -> Program:
    def program(sizes: Sizes) -> None:
        step = make()
        for _ in range(2):
            step().item()

    return program


ALL_PROGRAMS: dict[str, Program] = {
    "GPT": _repeated(lambda: models.gpt(tg, GPT, "cpu")), "MLP": _repeated(lambda: models.mlp(tg, "cpu")),
    **PROGRAMS, **BY_HAND,
}  # fmt: skip


@cache
def _usual() -> set[Any]:
    """The texts that are compiled beforehand."""
    return set(usual_texts(TARGET).texts)


def _asked(program: Program, sizes: Sizes, monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What a program asks of the CPU for the first time, derivatives included, as it would ask it of a GPU."""
    asked: list[Asked] = []
    make = plan.Plan._kernel_run

    def noted(self: Any, operator: Any, bound: Any) -> Any:
        asked.append((operator.op.name, on_a_gpu(bound), on_a_gpu(self.outs)))
        return make(self, operator, bound)

    monkeypatch.setattr(plan.Plan, "_kernel_run", noted)
    for operator in OPERATORS.values():
        monkeypatch.setattr(operator, "plans", {})
    with tg.connect(in_process=Host(["cpu"])):
        program(sizes)
    return asked


def _request(called: str, args: Any, outs: Any) -> Request:
    op = OPERATORS[called].op
    base, made = args[: len(op.base.params)], outs or ()
    if op.form == "functional" and op.mutates:
        made = ()
    compute = op.base.compute_dtype(base) if op.promotion else None
    return Request(op.base, DescribedDevice(), base, made, compute)  # type: ignore[arg-type]


def _texts(called: str, args: Any, outs: Any) -> set[Any]:
    """The texts that the launch of an operation needs, and those of the calls that it makes."""
    request = _request(called, args, outs)
    with collecting(TARGET) as collection:
        for preparer in OPERATORS[called].preparers.get(keys.CUDA, ()):
            if preparer.factory(request) is not None:
                is_row_major = hasattr(preparer.factory, "__wrapped__")
                for nested in _nested(called, request.args, request.outs, is_row_major):
                    ask(nested)
                break
    return set(collection.texts)


def _is_prepared(called: str, args: Any, outs: Any) -> bool:
    """Whether a kernel takes the call."""
    request = _request(called, args, outs)
    with collecting(TARGET):
        return any([one.factory(request) is not None for one in OPERATORS[called].preparers.get(keys.CUDA, ())])


def _nested(called: str, args: Any, outs: Any, is_row_major: bool) -> Iterator[Call]:
    """The calls that a launch makes; a factory of row-major operands is one that ``row_major`` has wrapped."""
    for arg in args if is_row_major else ():
        if isinstance(arg, Meta) and not arg.is_contiguous:
            yield call("_in_layout", arg, contiguous_strides(arg.shape))
    if called == "embedding_dense_backward":
        yield call("sort", Meta.of((args[1].numel,), args[1].dtype, DEVICE), 0, False, stable=True)
    if called == "convolution" and args[2] is not None:
        bias = Meta.of((args[2].numel, *(1,) * (outs[0].ndim - 2)), args[2].dtype, DEVICE)
        yield call("add_", outs[0], bias)
    if called in ("index_add", "index_put", "scatter_add") and args[0].dtype in HALVES:
        yield call("_to_copy", outs[0], dtype=dtypes.float32)
        yield call("copy_", outs[0], outs[0].like(dtype=dtypes.float32))


@pytest.mark.parametrize("name", ALL_PROGRAMS)
def test_a_usual_program_asks_for_kernels_that_were_compiled_beforehand(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _asked(ALL_PROGRAMS[name], drawn(seed), monkeypatch)
    lacking = set()
    for called, args, outs in asked:
        if not _usual() >= _texts(called, args, outs):
            lacking.add((called, " ".join(map(_described, args))[:250]))
    assert len(asked) > 10
    assert not lacking


LIBRARIES = frozenset(("mm", "bmm", "linear", "_linear_backward", "convolution", "_convolution_weight_backward",
                       "_fft_r2c", "_fft_c2r"))  # fmt: skip
"""What libraries compute, which are not there without a GPU."""
OF_THE_CPU = frozenset(("_softmax_cross_entropy", "_softmax_cross_entropy_backward"))
"""What only composites of the CPU come to."""
DATA_DEPENDENT = frozenset(("bincount",))
"""What waits for the device to tell the shape of the result, and is made of other operations (``registry.finds``)."""


@pytest.mark.parametrize("name", ALL_PROGRAMS)
def test_a_usual_program_asks_for_nothing_that_no_kernel_is_prepared_for(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no kernel is prepared for is left to CuPy, which compiles in the middle of a session."""
    lacking = set()
    for called, args, outs in _asked(ALL_PROGRAMS[name], drawn(seed), monkeypatch):
        if called not in LIBRARIES | OF_THE_CPU | DATA_DEPENDENT and not _is_prepared(called, args, outs):
            lacking.add((called, " ".join(map(_described, args))[:250]))
    assert not lacking


def _described(arg: Any) -> str:
    is_part = isinstance(arg, Meta) and not arg.is_contiguous
    return f"{arg} of strides {arg.strides}" if is_part else str(arg)
