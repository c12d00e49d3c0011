"""The rule of element-wise operations: operands get dimensions of size 1, so that they broadcast as elements do."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType

from .case import Case, Operand


def pointwise(case: Case) -> Any:
    """Compute an element-wise operation, or another one whose operands broadcast and which has no dimensions."""
    ndim = max([operand.ndim for operand in case.operands()])
    dtype = _computed_type(case)
    if case.op.public.endswith("_backward"):  # it takes operands of one shape
        return case.call(*[value.front if isinstance(value, Operand) else value for value in case.args])
    promoted = case.op.promoted
    return case.call(
        *[_aligned(value, ndim, dtype if place in promoted else None) for place, value in enumerate(case.args)]
    )


def _computed_type(case: Case) -> DType | None:
    """Return the type to cast operands to where some are numbers for one element, and no numbers for the batch."""
    op = case.op
    operands = case.operands()
    if not op.promotion or len({operand.meta.dtype for operand in operands}) == 1:
        return None
    if not any([operand.is_batched and not operand.ndim for operand in operands]):
        return None
    return op.compute_dtype([value.meta if isinstance(value, Operand) else value for value in case.args])


def _aligned(value: Any, ndim: int, dtype: DType | None) -> Any:
    if not isinstance(value, Operand):
        return value
    tensor: Tensor = value.lifted(ndim)
    is_number = value.is_batched and not value.ndim
    return tensor.to(dtype) if dtype is not None and is_number and tensor.dtype is not dtype else tensor
