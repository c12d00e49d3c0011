"""What computes matrix products on a GPU: libraries, precisions, padding, tuning, graphs, and what is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from .adapters import EngineAdapter
from .harness import to_torch
from .matrix_products import FLOATS, LAYOUTS, SIZES, check, compare, numbers, transposed

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("active")]


@pytest.mark.usefixtures("default_switches")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("forced", [False, True])
def test_sizes_that_tensor_cores_do_not_take(
    gpu: EngineAdapter, dtype: torch.dtype, forced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padded because they are large, or because the estimate is told to: each size in turn, transposed, misaligned."""
    torch.manual_seed(16)
    _switched(gpu, "allow_tf32", True)
    sizes = [(2048, 1024, 2047), (2047, 1024, 2048), (2048, 1023, 2048)]
    if forced:
        from server.engine.cuda.gemm import padding as gemm_padding

        monkeypatch.setattr(gemm_padding, "_GAIN", 0.0)
        sizes = [(56, 72, 83), (83, 72, 56), (56, 83, 72), (89, 91, 97), (1, 83, 5), (5, 1, 83)]
    for m, k, n in sizes:
        for left, right in (("rows", "rows"), ("columns", "columns"), ("gapped", "gapped columns")):
            a, b = LAYOUTS[left](numbers((m, k), dtype)), LAYOUTS[right](numbers((k, n), dtype))
            found = gpu.functional.mm(gpu.tensor(a), gpu.tensor(b))
            expected = a.double() @ b.double()
            error = (to_torch(gpu.numpy(found)).double() - expected).norm() / expected.norm()
            assert error < (4e-3 if dtype is torch.bfloat16 else 1e-3), f"{(m, k, n)} {left} {right}"


def _switched(gpu: EngineAdapter, name: str, value: Any) -> None:
    gpu.context.switches = gpu.context.switches.with_setting(name, value)


@pytest.fixture
def default_switches(gpu: EngineAdapter) -> Iterator[None]:
    before = gpu.context.switches
    yield
    gpu.context.switches = before


@pytest.mark.usefixtures("default_switches")
def test_tensorfloat_is_used_only_where_allowed(gpu: EngineAdapter) -> None:
    torch.manual_seed(11)
    a, b = torch.randn(256, 512), torch.randn(512, 128)
    expected = a.double() @ b.double()

    def error() -> float:
        found = to_torch(gpu.numpy(gpu.functional.mm(gpu.tensor(a), gpu.tensor(b))))
        return ((found.double() - expected).norm() / expected.norm()).item()

    exact = error()
    _switched(gpu, "allow_tf32", True)
    rounded = error()
    _switched(gpu, "allow_tf32", False)
    assert exact < 1e-6 < 1e-5 < rounded < 1e-3
    assert error() == exact


@pytest.mark.usefixtures("default_switches")
@pytest.mark.parametrize("library", ["cublas", "cublaslt", "own"])
def test_every_library_gives_the_same(gpu: EngineAdapter, library: str) -> None:
    torch.manual_seed(12)
    _switched(gpu, "preferred_blas_library", library)
    for dtype, (m, k, n) in itertools.product(FLOATS, SIZES):
        a, b, bias = numbers((m, k), dtype), numbers((k, n), dtype), numbers((n,), dtype)
        compare(gpu, "mm", [a, transposed(b)], k, library)
        compare(gpu, "addmm", [bias, a, b], k, library, beta=2)
        compare(gpu, "addmm", [numbers((m, n), dtype), a, b], k, library, beta=2)
        compare(gpu, "linear", [a, numbers((n, k), dtype), bias], k, library)
        compare(gpu, "bmm", [numbers((3, m, k), dtype), numbers((3, k, n), dtype)], k, library)


@pytest.mark.usefixtures("default_switches")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_reduced_precision_reductions_can_be_forbidden(gpu: EngineAdapter, dtype: torch.dtype) -> None:
    torch.manual_seed(13)
    _switched(gpu, f"allow_{'fp16' if dtype is torch.float16 else 'bf16'}_reduced_precision_reduction", False)
    compare(gpu, "mm", [numbers((16, 8192), dtype), numbers((8192, 16), dtype)], 8192)


@pytest.mark.usefixtures("default_switches")
def test_tuning_chooses_measures_once_and_changes_no_result(gpu: EngineAdapter) -> None:
    from server.engine.tuning import Tuner

    torch.manual_seed(14)
    tuner = Tuner()
    tuner.set(True, 5, 10)
    gpu.context.switches = gpu.context.switches.with_tuner(tuner)
    a, b, c = torch.randn(64, 96), torch.randn(96, 80), torch.randn(64, 80)
    compare(gpu, "mm", [a, b], 96)
    compare(gpu, "addmm", [c, a, b], 96, beta=2)
    value = gpu.tensor(c)
    gpu.functional.addmm_(value, gpu.tensor(a), gpu.tensor(b), beta=2)
    check(gpu, value, torch.addmm(c.double(), a.double(), b.double(), beta=2), 96, "addmm_")
    before = tuner.lines()
    assert len(before) == 2
    assert all(float(line[3]) > 0 for line in before)
    compare(gpu, "mm", [a, b], 96)
    assert tuner.lines() == before


def test_products_can_be_captured_in_graphs(gpu: EngineAdapter) -> None:
    import cupy as cp

    torch.manual_seed(15)
    for dtype in (torch.float32, torch.bfloat16):
        a, b = gpu.tensor(numbers((64, 64), dtype)), gpu.tensor(numbers((64, 64), dtype))
        expected = gpu.numpy(gpu.functional.mm(a, b))
        stream = cp.cuda.get_current_stream()
        stream.begin_capture()
        result = gpu.functional.mm(a, b)
        graph = stream.end_capture()
        result.array[...] = 0
        graph.launch(stream)
        assert np.array_equal(gpu.numpy(result), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_sizes_near_each_other_are_asked_for_once_and_those_that_come_again_on_their_own(
    gpu: EngineAdapter, seed: int, dtype: torch.dtype
) -> None:
    from server.engine.cuda.runtime.provisional import ASKED_AT
    from server.library_choices import library_choices

    torch.manual_seed(seed)
    weight, bias = numbers((96, 72), dtype), numbers((96,), dtype)
    asked, borrowed = library_choices.asked, library_choices.borrowed
    for rows in range(1032, 1500, 24):
        compare(gpu, "linear", [numbers((rows, 72), dtype), weight, bias], 72)
        compare(gpu, "mm", [numbers((96, rows), dtype), numbers((rows, 72), dtype)], rows)
    assert library_choices.asked - asked < 10
    assert library_choices.borrowed - borrowed > 20
    given = [numbers((1128, 72), dtype), weight, bias]
    asked = library_choices.asked
    for _ in range(2 * ASKED_AT):
        compare(gpu, "linear", given, 72)
    assert library_choices.asked - asked == 1
