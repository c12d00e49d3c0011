"""Products of few rows with what stands around them, and writes into caches: one kernel each, which computes the same.

Without a GPU the host executes the texts of the kernels; ``host_kernels`` says how.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine import context, keys
from server.engine import functional as F
from server.engine.cuda import families
from server.engine.cuda.gemm import joined_products
from server.engine.cuda.index import joined_writes
from server.engine.programs.expansion import traced
from server.engine.programs.graph import Graph, run
from server.engine.programs.joined import PRODUCTS, WRITES, Joined
from server.engine.programs.specialise import specialise
from server.engine.value import Value
from telegrad_protocol import dtypes

from ..ops.adapters import EngineAdapter
from .cuda_registrations import registrations, withdraw
from .host_kernels import HostKernel
from .joined_steps import noting_kernels

_ = registrations
families.import_families()
withdraw()
DEPTH, COLUMNS = 384, 52
TYPES = [(torch.float32, 1), (torch.float32, 3), (torch.bfloat16, 1), (torch.float16, 2)]
TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def _normal(kind: str, x: Value, *parameters: Any) -> Any:
    if kind == "rms":
        return F._rms_norm(x, (DEPTH,), parameters[0], 1e-6)[0]
    return F._layer_norm(x, (DEPTH,), *parameters, 1e-5)[0]


def _residual(x: Value, w: Value, b: Value, more: Value, *_: Value) -> Any:
    return F.add(more, F.linear(x, w, b))


def _in_place(x: Value, w: Value, b: Value, more: Value, *_: Value) -> Any:
    more.add_(F.linear(x, w, b))
    return F.linear(x, w, b).mul_(2.5)


def _activated(x: Value, w: Value, b: Value, more: Value, u: Value, scale: Value, shift: Value) -> Any:
    return F.gelu(F.linear(_normal("layer", x, scale, shift), w, b), approximate="tanh")


def _heads(x: Value, w: Value, b: Value, more: Value, u: Value, scale: Value, shift: Value) -> Any:
    rows = _normal("rms", x, scale)
    return F.linear(rows, w, b), F.linear(rows, F.narrow(u, 0, 8, 16)), F.mul(F.linear(rows, u), 0.5)


def _gated(x: Value, w: Value, b: Value, more: Value, u: Value, scale: Value, shift: Value) -> Any:
    rows = _normal("layer", x, None, None)
    gate = F.linear(rows, w)
    return F.mul(F.silu(gate), F.linear(rows, u)), gate


def _broadcast(x: Value, w: Value, b: Value, more: Value, u: Value, scale: Value, shift: Value) -> Any:
    """Operands of few elements and of another type, and a truth value for each element."""
    made = F.linear(x, w)
    return F.where(F.gt(more, 0.0), F.add(made, b), F.mul(made, F._to_copy(F.select(b, 0, 3), dtype=dtypes.float32)))


CASES: list[tuple[Callable[..., Any], int]] = [
    (_residual, 1), (_in_place, 1), (_activated, 1), (_heads, 1), (_gated, 1), (_broadcast, 1),
]  # fmt: skip
"""What is computed, and how many kernels of products that takes."""


def _operands(dtype: torch.dtype, rows: int) -> list[torch.Tensor]:
    shapes = ((1, rows, DEPTH), (COLUMNS, DEPTH), (COLUMNS,), (1, rows, COLUMNS), (COLUMNS, DEPTH), (DEPTH,), (DEPTH,))
    return [(torch.randn(shape) / (shape[-1] ** 0.5 if len(shape) == 2 else 1)).to(dtype) for shape in shapes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where texts are compiled for the host, each once."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Joined]:
    """What the host joins and executes by the texts for a GPU, one of a single multiprocessor."""
    on_host = functools.partial(HostKernel, folder=folder)
    monkeypatch.setattr(joined_products, "load_kept", on_host)
    monkeypatch.setattr(joined_writes, "load", on_host)
    monkeypatch.setattr(joined_products, "multiprocessors", lambda device: 1)
    return noting_kernels(monkeypatch, keys.CPU, PRODUCTS, WRITES)


def _check(
    adapter: EngineAdapter, function: Callable[..., Any], drawn: Sequence[torch.Tensor], tolerance: float
) -> None:
    """Whether a program computes what its operations compute, and leaves its operands as they leave them."""

    def fresh() -> list[Value]:
        return [adapter.tensor(tensor.clone()) for tensor in drawn]

    metas = [value.meta for value in fresh()]
    graph: Graph = traced(function, metas)
    expected, values = fresh(), fresh()
    wanted = [*run(graph, expected), *expected]
    executable = specialise(graph, metas, [*range(len(metas))])
    context.current.checks.covered = True
    try:
        found = [*executable.run(values), *values]
    finally:
        context.current.checks.covered = False
    for mine, other in zip(found, wanted, strict=True):
        assert mine.meta is other.meta
        got, right = (adapter.numpy(one).astype(np.float64) for one in (mine, other))
        np.testing.assert_allclose(got, right, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(right).max())))


@pytest.mark.parametrize("dtype, rows", TYPES, ids=str)
@pytest.mark.parametrize("function, kernels", CASES, ids=[case[0].__name__.strip("_") for case in CASES])
def test_products_compute_the_same_with_what_stands_around_them(
    adapter: EngineAdapter, seed: int, joined: list[Joined], function: Any, kernels: int, dtype: Any, rows: int
) -> None:
    torch.manual_seed(seed)
    _check(adapter, function, _operands(dtype, rows), TOLERANCES[dtype])
    assert [one.kind for one in joined] == [PRODUCTS] * kernels


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, rows", TYPES, ids=str)
@pytest.mark.parametrize("function, kernels", CASES, ids=[case[0].__name__.strip("_") for case in CASES])
def test_products_on_a_gpu_compute_the_same(
    cuda_device: str, seed: int, monkeypatch: pytest.MonkeyPatch, function: Any, kernels: int, dtype: Any, rows: int
) -> None:
    torch.manual_seed(seed)
    adapter = EngineAdapter(cuda_device)
    joined = noting_kernels(monkeypatch, keys.CUDA, PRODUCTS, WRITES)
    _check(adapter, function, _operands(dtype, rows), TOLERANCES[dtype])
    assert [one.kind for one in joined] == [PRODUCTS] * kernels


def _caches(keys_: Value, values: Value, new: Value, index: Value) -> tuple[Value, ...]:
    for number, cache in enumerate((keys_, values)):
        cache.index_copy_(2, index, F.transpose(F.unflatten(F.narrow(new, 2, 64 * number, 64), 2, (4, 16)), 1, 2))
    return F.add(keys_, values), F.clone(index)


def _cached(dtype: torch.dtype, samples: int) -> list[torch.Tensor]:
    drawn = [torch.randn(samples, 4, 9, 16), torch.randn(samples, 4, 9, 16), torch.randn(samples, 2, 128)]
    return [*[tensor.to(dtype) for tensor in drawn], torch.tensor([7, 2])]


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_keys_and_values_are_written_together(
    adapter: EngineAdapter, seed: int, joined: list[Joined], dtype: Any, samples: int
) -> None:
    torch.manual_seed(seed)
    _check(adapter, _caches, _cached(dtype, samples), 0)
    assert [one.kind for one in joined] == [WRITES]


@pytest.mark.gpu
def test_keys_and_values_are_written_together_on_a_gpu(
    cuda_device: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(seed)
    joined = noting_kernels(monkeypatch, keys.CUDA, PRODUCTS, WRITES)
    _check(EngineAdapter(cuda_device), _caches, _cached(torch.bfloat16, 3), 0)
    assert [one.kind for one in joined] == [WRITES]


def _rewritten(x: Value, weight: Value) -> Any:
    """Each product has weights that the kernel just before it has written."""
    for _ in range(8):
        weight.mul_(1.0625)
        x = F.add(x, F.linear(x, weight))
    return x


@pytest.mark.gpu
def test_kernels_of_a_graph_that_begin_early_wait_for_what_they_read(cuda_device: str, seed: int) -> None:
    torch.manual_seed(seed)
    adapter = EngineAdapter(cuda_device)
    drawn = [torch.randn(1, 1024).bfloat16(), (torch.randn(1024, 1024) / 64).bfloat16()]
    captured, plain = ([adapter.tensor(tensor.clone()) for tensor in drawn] for _ in range(2))
    metas = [value.meta for value in plain]
    executable = specialise(traced(_rewritten, metas), metas, [0, 1])
    backend, made = plain[0].backend, []

    def work() -> bool:
        made.append(executable.run(captured)[0])
        backend.flush()
        return True

    with backend.as_current():
        backend.flush()
        graph = backend.capture(work)
        assert graph is not None
        for _ in range(5):
            assert graph.launch()
            wanted = executable.run(plain)[0]
            np.testing.assert_array_equal(adapter.numpy(made[0]), adapter.numpy(wanted))
            np.testing.assert_array_equal(adapter.numpy(captured[1]), adapter.numpy(plain[1]))
