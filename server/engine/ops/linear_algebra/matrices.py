"""What implementations of linear algebra share: adjoints, the library that factorizes, and its error messages."""

from __future__ import annotations

import numpy as np

from server.engine import functional as F
from server.engine.ops.complex import conj
from telegrad_protocol.errors import LinearAlgebraError


def adjoint(value):
    """The conjugate transpose of matrices."""
    return conj(F.transpose(value, -2, -1))


def diagonal(value):
    """A view of the diagonals of matrices."""
    return F.diagonal(value, 0, -2, -1)


def constant_of(value, constant):
    """A constant in the shape of a value, as a function of the value: its derivative is 0."""
    everywhere = F.eq(F.zeros_like(value), 0)
    return F.masked_fill(value, everywhere, 0) + constant


def expanded(xp, *operands):
    """Arrays of matrices broadcast to one batch."""
    batch = np.broadcast_shapes(*(operand.shape[:-2] for operand in operands))
    return [xp.broadcast_to(operand, batch + operand.shape[-2:]) for operand in operands]


def swapped(array):
    """The transposes of matrices, as a view."""
    return array.swapaxes(-2, -1)


def check_info(xp, name, info, explain):
    """Raise LinearAlgebraError for the first matrix whose ``info`` is not 0; waits for the device.

    ``explain`` turns the info into the reason.
    """
    if not info.size or not bool(xp.any(info)):
        return
    flat = info.reshape(-1)
    number = int(xp.argmax(flat != 0))
    raise failure(name, info.ndim > 0, number, int(flat[number]), explain)


def failure(name, is_batch, number, info, explain):
    """The error of matrix ``number``, whose ``info`` is not 0."""
    which = f" (Batch element {number}):" if is_batch else ""
    return LinearAlgebraError(f"{name}:{which} {explain(info)}")
