"""What contracts of linear algebra share: checks of matrices, and the shapes of batches of them."""

from __future__ import annotations

from telegrad_protocol.dtypes import bfloat16, float16
from telegrad_protocol.errors import DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes
from telegrad_protocol.meta import Meta


def check_floating(name: str, *operands: Meta) -> None:
    """Refuse integers and half precision, for which LAPACK has no routines, and operands of different types."""
    for operand in operands:
        if not operand.dtype.is_differentiable:
            raise DTypeError(f"{name}: expected a floating point or complex tensor, got {operand}")
        if operand.dtype in (float16, bfloat16):
            raise DTypeError(f"{name}: low precision types are not supported, got {operand}; convert it to float32")
        if operand.dtype is not operands[0].dtype:
            raise DTypeError(f"{name}: operands must have the same dtype, got {operands[0]} and {operand}")


def check_matrix(name: str, *operands: Meta) -> None:
    """Refuse operands of less than two dimensions."""
    for operand in operands:
        if operand.ndim < 2:
            raise ShapeError(f"{name}: the input tensor must have at least 2 dimensions, got {operand}")


def check_square(name: str, *operands: Meta) -> None:
    """Refuse operands that are no batches of square matrices of single or double precision, real or complex."""
    check_square_shape(name, *operands)
    check_floating(name, *operands)


def check_square_shape(name: str, *operands: Meta) -> None:
    """Refuse operands that are no batches of square matrices."""
    check_matrix(name, *operands)
    for operand in operands:
        if operand.shape[-1] != operand.shape[-2]:
            raise ShapeError(f"{name}: A must be batches of square matrices, but they are {_of(operand)} matrices")


def _of(operand: Meta) -> str:
    return f"{operand.shape[-2]} by {operand.shape[-1]}"


def batch_of(name: str, *operands: Meta) -> Size:
    """Return the shape to which the batches of matrices broadcast."""
    return broadcast_shapes(name, *(operand.shape[:-2] for operand in operands))


def check_side(name: str, A: Meta, B: Meta, left: bool) -> Size:
    """Return the shape of the solution of AX = B, or of XA = B; refuse operands that do not fit."""
    check_matrix(name, B)
    check_floating(name, A, B)
    if B.shape[-2 if left else -1] != A.shape[-1]:
        system = "AX = B" if left else "XA = B"
        raise ShapeError(f"{name}: incompatible shapes of A and B for {system}: {_of(A)} and {_of(B)}")
    return (*batch_of(name, A, B), *B.shape[-2:])


def is_vector(A: Meta, B: Meta) -> bool:
    """Tell whether the right side of a system is a batch of vectors, as PyTorch decides it."""
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)


def column_major(operand: Meta, shape: Size | None = None) -> Meta:
    """Return the meta of new matrices whose columns are contiguous, as LAPACK and cuSOLVER return them."""
    size = operand.shape if shape is None else shape
    rows, columns = size[-2:]
    strides = (*operand.like(size).strides[:-2], 1, max(rows, 1))
    return operand.like(size, strides=strides) if rows and columns else operand.like(size)


def in_order(operand: Meta, shape: Size, by_columns: bool) -> Meta:
    """Return the meta of new matrices whose columns, or else rows, are contiguous."""
    return column_major(operand, shape) if by_columns else operand.like(shape)


def real_like(A: Meta, shape: Size) -> Meta:
    """Return the meta of real numbers of the precision of ``A``."""
    return A.like(shape, A.dtype.to_real())
