"""The GPU's own pooling kernels against PyTorch's results in double precision, in both memory formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.ops.adapters import EngineAdapter
from tests.ops.harness import Comparison

pytestmark = pytest.mark.gpu

CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    ("max_pool2d", (2, 16, 15, 13), {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True}),
    ("max_pool2d", (2, 5, 15, 13), {"kernel_size": (2, 3), "dilation": 2, "ceil_mode": True, "return_indices": True}),
    ("max_pool2d", (16, 9, 9), {"kernel_size": 2}), ("max_pool1d", (2, 3, 40), {"kernel_size": 4, "stride": 3}),
    ("max_pool3d", (1, 8, 6, 7, 8), {"kernel_size": 2, "stride": 1, "return_indices": True}),
    ("avg_pool2d", (2, 16, 15, 13), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("avg_pool2d", (2, 7, 9, 9), {"kernel_size": 3, "padding": 1, "ceil_mode": True, "count_include_pad": False}),
    ("avg_pool2d", (2, 8, 9, 9), {"kernel_size": 2, "divisor_override": 3}),
    ("avg_pool1d", (2, 3, 41), {"kernel_size": 5}), ("avg_pool3d", (1, 4, 6, 7, 8), {"kernel_size": (2, 3, 2)}),
    ("adaptive_avg_pool2d", (2, 16, 15, 13), {"output_size": (7, 4)}),
    ("adaptive_avg_pool2d", (2, 8, 3, 5), {"output_size": (7, 9)}),
    ("adaptive_avg_pool3d", (1, 4, 6, 7, 8), {"output_size": (3, 2, 5)}),
    ("adaptive_max_pool2d", (2, 16, 15, 13), {"output_size": (7, 4), "return_indices": True}),
    ("adaptive_max_pool1d", (2, 6, 31), {"output_size": 9, "return_indices": True}),
    ("adaptive_avg_pool2d", (2, 3, 40, 71), {"output_size": (3, 4)}),
    ("avg_pool2d", (2, 3, 30, 91), {"kernel_size": (3, 40), "stride": (2, 5), "padding": (1, 8)}),
    ("avg_pool1d", (3, 5, 67), {"kernel_size": 9, "padding": 4, "count_include_pad": False}),
]  # fmt: skip
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
LAYOUTS = [
    pytest.param(case, innermost, id=f"{case[0]}-{case[1]}-{'channels' if innermost else 'rows'}")
    for case in CASES
    for innermost in (False, True)
    if not innermost or len(case[1]) in FORMATS
]


@pytest.fixture(scope="module")
def adapter(cuda_device: str) -> EngineAdapter:
    return EngineAdapter(cuda_device)


@pytest.fixture(autouse=True)
def _activated(adapter: EngineAdapter) -> None:
    adapter.activate()


def _in_double(function: Any, dtype: torch.dtype) -> Any:
    """PyTorch's function in double precision, rounded once."""

    def run(x: torch.Tensor, **options: Any) -> Any:
        found = function(x.double(), **options)
        return (found[0].to(dtype), found[1]) if isinstance(found, tuple) else found.to(dtype)

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("case", "innermost"), LAYOUTS)
def test_pooling_and_its_gradients(adapter: EngineAdapter, case: Any, dtype: torch.dtype, innermost: bool) -> None:
    name, shape, options = case
    x = torch.randn(shape).to(dtype)
    if innermost:
        x = x.contiguous(memory_format=FORMATS[x.ndim])
    theirs = _in_double(getattr(torch.nn.functional, name), dtype)
    Comparison(adapter, check_strides=False).run(
        theirs, adapter.function(name), [x.requires_grad_()], options, second=dtype.itemsize > 2
    )


def test_not_a_number_and_infinities_are_found(adapter: EngineAdapter) -> None:
    x = torch.randn(1, 8, 12, 12)
    x[0, 0, 3, 3], x[0, 1, 5, 5], x[0, 2] = float("nan"), float("inf"), -float("inf")
    for format in (torch.contiguous_format, torch.channels_last):
        y = x.contiguous(memory_format=format)
        expected = torch.nn.functional.max_pool2d(y, 3, 2, 1, return_indices=True)
        found = adapter.functional.max_pool2d(adapter.tensor(y), 3, 2, 1, return_indices=True)
        for mine, reference in zip(found, expected, strict=True):
            np.testing.assert_array_equal(adapter.numpy(mine), reference.numpy())


def test_misaligned_channels_are_read_one_by_one(adapter: EngineAdapter) -> None:
    memory = torch.randn(1 + 2 * 8 * 9 * 9).half()
    x = torch.as_strided(memory, (2, 8, 9, 9), (648, 1, 72, 8), 1)
    expected = torch.nn.functional.avg_pool2d(x.double(), 3)
    found = adapter.numpy(adapter.functional.avg_pool2d(adapter.tensor(x), 3))
    np.testing.assert_allclose(found.astype(np.float64), expected.numpy(), atol=2e-3)
