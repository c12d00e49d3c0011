"""Checks and shapes that several families of contracts share."""

from __future__ import annotations

from telegrad_protocol.errors import ArgumentError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta


def check_size(name: str, size: Size) -> Size:
    """``size``, if no dimension is negative."""
    if min(size, default=0) < 0:
        raise ArgumentError(f"{name}: negative dimension in {list(size)}")
    return size


def check_backward(name: str, gradient: Meta, other: Meta) -> None:
    """Refuse a gradient of another shape than what it is the gradient of."""
    if gradient.shape != other.shape:
        raise ShapeError(f"{name}: the gradient {gradient} does not have the shape of {other}")
