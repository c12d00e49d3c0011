"""A GPU gives what the host gives: element-wise operations and reductions on values that are easy to get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import TelegradError
from telegrad_protocol.ops import BY_INDEX, Op

from .adapters import OURS_TO_TORCH, EngineAdapter, to_torch
from .harness import flatten

pytestmark = pytest.mark.gpu

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool,
    torch.complex64,
)  # fmt: skip
EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 7.0, -7.0, 0.1, 30.0, -30.0, 100.0, float("inf"),
    -float("inf"), float("nan"),
]  # fmt: skip
TOLERANCES = {
    torch.float32: (3e-5, 1e-6), torch.float64: (1e-11, 1e-12), torch.float16: (2e-3, 1e-4),
    torch.bfloat16: (1e-2, 1e-3), torch.complex64: (1e-4, 1e-5), torch.complex128: (1e-11, 1e-12),
}  # fmt: skip


def _elementwise() -> list[Op]:
    """Operations on one or two tensors that need nothing else."""
    return [op for op in BY_INDEX if op.base is op and op.promotion and not op.is_random and _takes_tensors_only(op)]


def _takes_tensors_only(op: Op) -> bool:
    needed = [p for p in op.params if p.required]
    return 1 <= len(needed) <= 2 and all(p.kind.holds_tensors for p in needed)


_REDUCTIONS = (
    "sum", "prod", "mean", "amax", "amin", "max", "min", "any", "all", "var", "std", "norm", "nansum", "logsumexp",
    "argmax", "argmin", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "log_softmax", "sort",
    "argsort", "median", "count_nonzero", "aminmax",
)  # fmt: skip
NEEDS_DIM = {"logsumexp", "logcumsumexp", "cumsum", "cumprod", "cummax", "cummin", "softmax", "log_softmax"}


def _edges(dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.tensor(EDGES).to(dtype)
    return torch.tensor([0, 1, -1, 2, -3, 7, -100, 120] if dtype.is_signed else [0, 1, 2, 3, 7, 100, 1, 5]).to(dtype)


@pytest.fixture(scope="module")
def adapters(cuda_device: str) -> dict[str, EngineAdapter]:
    return {"cpu": EngineAdapter("cpu"), "gpu": EngineAdapter(cuda_device)}


def _results(adapter: EngineAdapter, function: str, tensors: list[torch.Tensor], extra: dict[str, Any]) -> Any:
    adapter.activate()
    try:
        found = flatten(adapter.function(function)(*map(adapter.tensor, tensors), **extra))
        return [(value.meta.dtype, adapter.numpy(value)) for value in found]
    except TelegradError as error:  # which a device raises with the next read
        return type(error)


def _compare(adapters: dict[str, EngineAdapter], name: str, tensors: list[torch.Tensor], **extra: Any) -> None:
    host, device = (_results(adapters[where], name, tensors, extra) for where in ("cpu", "gpu"))
    if isinstance(host, type) or isinstance(device, type):
        assert host == device, f"{host} on the host, {device} on the GPU"
        return
    for (dtype, expected), (_, found) in zip(host, device, strict=True):
        relative, absolute = TOLERANCES.get(OURS_TO_TORCH[dtype], (0, 0))
        if name == "cumsum" and absolute and expected.size:  # sums near zero have the rounding of those before
            absolute *= max(1.0, float(np.nanmax(np.nan_to_num(np.abs(expected.astype(complex)), posinf=0.0))))
        torch.testing.assert_close(to_torch(found), to_torch(expected), rtol=relative, atol=absolute, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("op", _elementwise(), ids=lambda op: op.name)
def test_elementwise_operations_agree_with_the_host(
    adapters: dict[str, EngineAdapter], op: Op, dtype: torch.dtype
) -> None:
    values = _edges(dtype)
    if sum(p.required for p in op.params) == 1:
        tensors = [values]
    else:
        grid = torch.meshgrid(values, values, indexing="ij")
        tensors = [part.reshape(-1).contiguous() for part in grid]
        if not dtype.is_floating_point:
            # dividing integers by zero is an error on the host alone
            tensors = [part[tensors[1] != 0] for part in tensors]
    _compare(adapters, op.public, tensors)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", _REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 0), (7,), (33, 65), (4, 1, 5)], ids=str)
def test_reductions_agree_with_the_host(
    adapters: dict[str, EngineAdapter], name: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randn(shape, generator=generator) * 3
    with_nan = torch.where(torch.rand(shape, generator=generator) < 0.05, float("nan"), drawn)
    sources = (drawn, drawn.mT, with_nan) if len(shape) > 1 else (drawn, with_nan)
    for source in sources if dtype.is_floating_point else sources[:-1]:
        tensor = (source > 0 if dtype is torch.bool else source.abs() if dtype is torch.uint8 else source).to(dtype)
        _compare(adapters, name, [tensor], **({"dim": -1} if name in NEEDS_DIM else {}))
        if name not in ("max", "min", "median"):
            _compare(adapters, name, [tensor], dim=0)


def test_a_number_on_the_host_goes_along_with_tensors_on_a_gpu(adapters: dict[str, EngineAdapter]) -> None:
    host, device = adapters["cpu"], adapters["gpu"]
    device.activate()
    number = host.tensor(torch.tensor(2.5))
    vector = device.tensor(torch.arange(4.0))
    functional = device.functional
    chosen = functional.where(functional.gt(vector, 1), vector, number)
    for found in (functional.add(vector, number), functional.mul(number, vector), chosen):
        assert found.device is vector.device
    np.testing.assert_array_equal(device.numpy(functional.add(number, vector)), np.arange(4, dtype=np.float32) + 2.5)
