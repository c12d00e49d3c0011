"""In which order the dimensions of a tensor lie in memory."""

from __future__ import annotations

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, ShapeError
from telegrad_protocol.memory_format import MemoryFormat, channels_last, channels_last_3d
from telegrad_protocol.meta import Meta

from .formats import is_contiguous


def dim_order(self: Tensor, *, ambiguity_check: bool | list[MemoryFormat] = False) -> tuple[int, ...]:
    """Return the dimensions from the outermost to the innermost.

    With ``ambiguity_check`` an order that sizes and strides leave open is refused; with a list of formats only unless
    the tensor lies in just one of them.
    """
    formats = [] if isinstance(ambiguity_check, bool) else ambiguity_check
    if not isinstance(formats, list) or not all(isinstance(one, MemoryFormat) for one in formats):
        raise ArgumentTypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    if (
        ambiguity_check is not False
        and _has_open_order(self._meta)
        and sum(is_contiguous(self, one) for one in formats) != 1
    ):
        raise ShapeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
        )
    return _order(self, ambiguity_check is not False)


def _has_open_order(meta: Meta) -> bool:
    """Tell whether other orders of the dimensions could have the same sizes and strides."""
    return len(set(meta.strides)) < meta.ndim or 1 in meta.shape


def _order(tensor: Tensor, must_be_only: bool) -> tuple[int, ...]:
    """Return the order of the one format in which the tensor lies, else that of strides, then of sizes."""
    every = range(tensor.ndim)
    lies_in_rows = is_contiguous(tensor)
    lies_in_channels = is_contiguous(tensor, channels_last) or is_contiguous(tensor, channels_last_3d)
    if lies_in_rows is not lies_in_channels:
        return tuple(every) if lies_in_rows else (0, *every[2:], 1)
    shape, strides = tensor._meta.shape, tensor._meta.strides
    if must_be_only and len(strides) > len(set(strides) - {0}) and len(strides) > 1:
        raise ShapeError("The tensor does not have unique dim order.")
    moved = iter(sorted((dim for dim in every if strides[dim]), key=lambda dim: (-strides[dim], -shape[dim])))
    return tuple([next(moved) if strides[dim] else dim for dim in every])
