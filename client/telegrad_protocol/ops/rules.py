"""Checks and shapes that several families of contracts share."""

from __future__ import annotations

from telegrad_protocol.errors import ArgumentError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta


def check_size(name: str, size: Size) -> Size:
    """Return ``size``; refuse negative dimensions."""
    if min(size, default=0) < 0:
        raise ArgumentError(f"{name}: negative dimension in {list(size)}")
    return size


def check_backward(name: str, gradient: Meta, other: Meta) -> None:
    """Refuse a gradient whose shape is not that of the tensor it belongs to."""
    if gradient.shape != other.shape:
        raise ShapeError(f"{name}: the gradient {gradient} does not have the shape of {other}")
