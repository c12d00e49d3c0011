"""Contracts of linear algebra."""

from __future__ import annotations

from ..errors import DTypeError, ShapeError
from ..meta import Meta
from .contract import op


@op
def mm(input: Meta, mat2: Meta) -> Meta:
    """The matrix product of two matrices: (m,k) @ (k,n) -> (m,n)"""
    if not (input.ndim == mat2.ndim == 2 and input.shape[1] == mat2.shape[0]):
        raise ShapeError(f"mm: cannot multiply {input} by {mat2}")
    if input.dtype is not mat2.dtype:
        raise DTypeError(f"mm: operands must have the same dtype, got {input} and {mat2}")
    return input.like((input.shape[0], mat2.shape[1]))
