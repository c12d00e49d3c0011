"""Products of matrices in groups of different sizes, and in types of eight bits; ``nn.functional`` re-exports them."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, bfloat16
from telegrad_protocol.errors import ArgumentError, NotSupportedError, ShapeError


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    """Multiply matrices group by group; ``offs`` has the end of each group along the dimension that is divided.

    (m, k) @ (g, k, n) -> (m, n) divides rows, (g, m, k) @ (k, n) -> (m, n) columns, and (m, k) @ (k, n) -> (g, m, n)
    what is summed over; (g, m, k) @ (g, k, n) -> (g, m, n) needs no ``offs``. The ends are read, which waits once.
    """
    if mat_a.ndim not in (2, 3) or mat_b.ndim not in (2, 3):
        raise ShapeError(f"grouped_mm: expected matrices of 2 or 3 dimensions, got {mat_a._meta} and {mat_b._meta}")
    if (mat_a.ndim == mat_b.ndim == 3) != (offs is None):
        raise ArgumentError("grouped_mm: offs is needed where an operand has two dimensions, and only there")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise ShapeError(f"grouped_mm: cannot multiply {mat_a._meta} by {mat_b._meta}")
    if bias is not None:
        raise NotSupportedError("grouped_mm: bias is not supported, by PyTorch neither; add it to the result")
    result = mat_a.matmul(mat_b) if offs is None else _divided(mat_a, mat_b, [int(end) for end in offs.tolist()])
    return result if out_dtype is None else result.to(out_dtype)


def _divided(mat_a: Tensor, mat_b: Tensor, ends: list[int]) -> Tensor:
    groups = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    if mat_a.ndim == mat_b.ndim:
        return function("stack")([mat_a[:, part].mm(mat_b[part]) for part in groups])  # type: ignore[no-any-return]
    whole, count = (mat_b, mat_b.shape[0]) if mat_b.ndim == 3 else (mat_a, mat_a.shape[0])
    if count != len(groups):
        raise ShapeError(f"grouped_mm: offs has the ends of {len(groups)} groups for {whole._meta}")
    if mat_a.ndim == 2:
        parts = [mat_a[part].mm(mat_b[number]) for number, part in enumerate(groups)]
        rest = mat_a.new_zeros((mat_a.shape[0] - ends[-1], mat_b.shape[-1]))
        return function("cat")([*parts, rest])  # type: ignore[no-any-return]
    parts = [mat_a[number].mm(mat_b[:, part]) for number, part in enumerate(groups)]
    rest = mat_b.new_zeros((mat_a.shape[1], mat_b.shape[1] - ends[-1]))
    return function("cat")([*parts, rest], 1)  # type: ignore[no-any-return]


def scaled_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any,
    swizzle_a: Any = None, swizzle_b: Any = None, bias: Tensor | None = None, output_dtype: DType | None = bfloat16,
    contraction_dim: list[int] | tuple[int, ...] = (), use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """Refuse to multiply matrices in types of eight bits with scales, since the server has no such types."""
    raise _no_eight_bits("scaled_mm", "mm")


def scaled_grouped_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any,
    swizzle_a: Any = None, swizzle_b: Any = None, bias: Tensor | None = None, offs: Tensor | None = None,
    output_dtype: DType | None = bfloat16, contraction_dim: list[int] | tuple[int, ...] = (),
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """Refuse to multiply groups of matrices in types of eight bits with scales: the server has no such types."""
    raise _no_eight_bits("scaled_grouped_mm", "nn.functional.grouped_mm")


def _no_eight_bits(name: str, instead: str) -> NotSupportedError:
    return NotSupportedError(
        f"{name}: telegrad has no floating-point types of eight bits; scale the operands and use {instead} in bfloat16"
    )
