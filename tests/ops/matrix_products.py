"""Matrices in every layout, and products of them on a GPU against float64, complex128, or wrapped int64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .adapters import EngineAdapter
from .harness import to_torch

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
ROUNDING = {
    torch.float32: 2.0**-22, torch.complex64: 2.0**-21, torch.float64: 2.0**-50, torch.complex128: 2.0**-49,
    torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7,
}  # fmt: skip
Layout = Callable[[torch.Tensor], torch.Tensor]


def transposed(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.mT.contiguous().mT


def _gapped(matrix: torch.Tensor) -> torch.Tensor:
    """Rows further apart than they are long, and a first element that is not aligned."""
    rows, columns = matrix.shape[-2:]
    holder = torch.zeros(*matrix.shape[:-2], rows + 2, columns + 5, dtype=matrix.dtype)
    view = holder[..., 1 : rows + 1, 3 : columns + 3]
    return view.copy_(matrix)


def _gapped_columns(matrix: torch.Tensor) -> torch.Tensor:
    return _gapped(matrix.mT).mT


def _no_unit_stride(matrix: torch.Tensor) -> torch.Tensor:
    holder = torch.zeros(*matrix.shape[:-1], matrix.shape[-1] * 2, dtype=matrix.dtype)
    return holder[..., ::2].copy_(matrix)


LAYOUTS: dict[str, Layout] = {
    "rows": lambda m: m, "columns": transposed, "gapped": _gapped, "gapped columns": _gapped_columns,
    "no unit stride": _no_unit_stride,
}  # fmt: skip
SIZES = [(1, 1, 1), (3, 5, 7), (17, 1, 33), (1, 40, 9), (64, 48, 128), (129, 65, 31), (8, 256, 1)]


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
    return torch.randint(0, 100, shape).to(dtype)


def wide(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor.long()


def check(gpu: EngineAdapter, found: Any, expected: torch.Tensor, terms: int, what: str) -> None:
    mine = to_torch(gpu.numpy(found))
    assert mine.shape == expected.shape, what
    if not (mine.dtype.is_floating_point or mine.dtype.is_complex):
        assert torch.equal(mine, expected.to(mine.dtype)), what
        return
    scale = 1.0 + expected.abs().nan_to_num(0, 0, 0).max().item() if expected.numel() else 1.0
    limit = ROUNDING[mine.dtype] * scale * (1.0 if mine.dtype.itemsize == 2 else max(terms, 1) ** 0.5 + 2)
    torch.testing.assert_close(
        wide(mine), expected, rtol=0, atol=limit * 2, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def compare(gpu: EngineAdapter, name: str, args: list[Any], terms: int, what: str = "", **options: Any) -> Any:
    mine = [gpu.tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
    found = getattr(gpu.functional, name)(*mine, **options)
    reference = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    expected = reference(*[wide(a) for a in args], **options)
    check(gpu, found, expected, terms, f"{name} {what} {[tuple(a.shape) for a in args if a is not None]} {options}")
    return found
