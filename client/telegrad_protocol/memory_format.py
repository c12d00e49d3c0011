"""Memory formats of images and volumes: which dimension lies innermost, told from strides as PyTorch tells it.

Tensors of (n, c, h, w) and (n, c, d, h, w) are ``contiguous`` with the last dimension innermost, ``channels_last`` with
the channels innermost. Knows nothing of operations.
"""

from __future__ import annotations

from .errors import ArgumentError
from .layout import Size, contiguous_strides, strides_in_order
from .shown_name import shown_name


class MemoryFormat:
    """A named order of dimensions; every format is one object, compared by identity."""

    __slots__ = ("name", "ndim")

    def __init__(self, name: str, ndim: int | None = None) -> None:
        self.name = name
        self.ndim = ndim
        """The number of dimensions that the format is for; None where it is for any."""

    def __repr__(self) -> str:
        return shown_name(self.name)


contiguous_format = MemoryFormat("contiguous_format")
preserve_format = MemoryFormat("preserve_format")
channels_last = MemoryFormat("channels_last", 4)
channels_last_3d = MemoryFormat("channels_last_3d", 5)


def _channels_innermost(ndim: int) -> list[int]:
    """Return the dimensions of a channels-last tensor from the innermost to the outermost."""
    return [1, *range(ndim - 1, 1, -1), 0]


def channels_last_strides(shape: Size) -> Size:
    """Return dense strides with the channels innermost."""
    return strides_in_order(shape, _channels_innermost(len(shape)))


def is_channels_last(shape: Size, strides: Size) -> bool:
    """Tell whether images or volumes have their channels innermost, with gaps allowed; ambiguous ones do not."""
    if len(shape) not in (4, 5) or 0 in shape or not strides[1]:
        return False
    least = 0
    for dim in _channels_innermost(len(shape)):
        stride = strides[dim]
        if stride < least or (dim == 0 and least == strides[1]):
            return False
        least = stride * shape[dim] if shape[dim] > 1 else stride
    return True


def strides_of(shape: Size, wanted: MemoryFormat) -> Size:
    """Return dense strides in a format; ``ArgumentError`` where it is for another number of dimensions."""
    if wanted.ndim is not None and len(shape) != wanted.ndim:
        raise ArgumentError(f"{wanted.name} is for tensors of {wanted.ndim} dimensions, not for {list(shape)}")
    return contiguous_strides(shape) if wanted.ndim is None else channels_last_strides(shape)


def lies_in(shape: Size, strides: Size, wanted: MemoryFormat) -> bool:
    """Tell whether elements lie without gaps in the order of a format, whatever the strides of dimensions of size 1."""
    if 0 in shape:
        return True
    expected = strides_of(shape, wanted)
    return all(given == step for size, given, step in zip(shape, strides, expected, strict=True) if size != 1)
