"""``contiguous``, ``is_contiguous`` and ``clone``: functions that take ``memory_format``.

With ``preserve_format``, which is what operations do by themselves, a result has the order of its operand.
"""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import check_memory_format, function, in_memory_format
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.memory_format import (
    MemoryFormat,
    channels_last,
    channels_last_3d,
    contiguous_format,
    is_channels_last,
    lies_in,
    preserve_format,
    strides_of,
)


def contiguous(self: Tensor, memory_format: MemoryFormat = contiguous_format) -> Tensor:
    """Return the tensor without gaps, in the order of a format; itself if it is that already."""
    if memory_format is contiguous_format:
        return self if _is_kept(self) else function("contiguous")(self)
    if memory_format is preserve_format:
        raise ArgumentError("contiguous: preserve_format is not an order of elements")
    return in_memory_format("contiguous", self, memory_format)


def _is_kept(tensor: Tensor) -> bool:
    """Whether the elements lie without gaps, and do so at all sizes where these are yet to be known."""
    meta = tensor._meta
    if not meta.is_contiguous or not tensor._session.is_for_all_sizes:
        return meta.is_contiguous
    return meta.strides == contiguous_strides(meta.shape)


def is_contiguous(self: Tensor, memory_format: MemoryFormat = contiguous_format) -> bool:
    """Tell whether the elements lie without gaps in the order of a format."""
    if memory_format is contiguous_format:
        return self._meta.is_contiguous
    wanted = check_memory_format("is_contiguous", memory_format)
    return self.ndim == wanted.ndim and lies_in(self._meta.shape, self._meta.strides, wanted)


def clone(input: Tensor, *, memory_format: MemoryFormat | None = preserve_format) -> Tensor:
    """Return a copy in the same memory order, or in that of a format."""
    if memory_format is None or memory_format is preserve_format:
        return function("clone")(input)  # type: ignore[no-any-return]
    format = check_memory_format("clone", memory_format)
    return function("_in_layout")(input, strides_of(input._meta.shape, format))  # type: ignore[no-any-return]


def in_format_of(input: Tensor, result: Tensor) -> Tensor:
    """Return a result of a composition with its channels innermost where those of ``input`` are."""
    if not is_channels_last(input._meta.shape, input._meta.strides):
        return result
    return in_memory_format("contiguous", result, channels_last if input.ndim == 4 else channels_last_3d)


METHODS: dict[str, Any] = {"contiguous": contiguous, "is_contiguous": is_contiguous, "clone": clone}
