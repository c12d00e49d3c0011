"""Linear algebra."""

from __future__ import annotations

from telegrad_protocol.ops import linalg as ops

from ..operators import implements


@implements(
    ops.mm,
    input=lambda grad, mat2: grad.mm(mat2.t()),  # (m,n) @ (k,n).T -> (m,k)
    mat2=lambda grad, input: input.t().mm(grad),  # (m,k).T @ (m,n) -> (k,n)
)
def mm(xp, input, mat2, *, out):
    xp.matmul(input, mat2, out=out)
