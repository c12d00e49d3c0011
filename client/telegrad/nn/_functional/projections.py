"""Names of ``nn.functional`` with an underscore, which programs' own attention and normalization import."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, bool_
from telegrad_protocol.errors import ArgumentError, DTypeError

from .attention import projected


def _in_projection_packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None) -> list[Tensor]:
    """Return query, key and value after their projections, whose weights (3 e, e) are one tensor."""
    return [part.contiguous() for part in projected(q, k, v, w, b)]


def _in_projection(
    q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, b_q: Tensor | None = None,
    b_k: Tensor | None = None, b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return query, key and value after their projections, each with weights of its own."""
    linear = function("linear")
    return linear(q, w_q, b_q), linear(k, w_k, b_k), linear(v, w_v, b_v)


def _canonical_mask(
    mask: Tensor | None, mask_name: str, other_type: DType | None, other_name: str, target_type: DType,
    check_other: bool = True,
) -> Tensor | None:  # fmt: skip
    """Return a mask as numbers of a type to be added to scores; of bools, -inf where true and 0 elsewhere."""
    if mask is None:
        return None
    if mask.dtype is not bool_ and not mask.dtype.is_floating_point:
        raise DTypeError(f"only bool and floating types of {mask_name} are supported, got {mask._meta}")
    if check_other and other_type is not None and mask.dtype is not other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=3,
        )
    if mask.dtype is not bool_:
        return mask
    zeros: Tensor = function("zeros_like")(mask, dtype=target_type)
    return zeros.masked_fill_(mask, -math.inf)


def _none_or_dtype(input: Any) -> DType | None:
    """Return the type of a tensor, None of None."""
    if input is None:
        return None
    if isinstance(input, Tensor):
        return input.dtype
    raise ArgumentError(f"input to _none_or_dtype() must be None or a tensor, not {type(input).__name__}")


def _verify_batch_size(size: Sequence[int]) -> None:
    """Raise ArgumentError where a channel of an input of this size has one value, which has no variance."""
    if math.prod(size[:1]) * math.prod(size[2:]) == 1:
        raise ArgumentError(f"Expected more than 1 value per channel when training, got input size {size}")
