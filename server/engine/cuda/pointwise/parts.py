"""Results that are copies of views: what is repeated element by element, and what has other elements in a part of it.

The part is shown by the rule of the view that the operation is named after, as is the place where copies go.
"""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.operators import Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol.layout import contiguous_strides, wrap_dim
from telegrad_protocol.meta import MAX_DIMENSIONS
from telegrad_protocol.ops import Op, rearrange, views

from .copying import copying
from .expressions import Chosen
from .pointwise import elementwise

_SCATTERS: dict[Op, Op] = {
    rearrange.select_scatter: views.select, rearrange.slice_scatter: views.slice,
    rearrange.diagonal_scatter: views.diagonal,
}  # fmt: skip
"""The operations that copy a tensor with other elements in a view of it, and the view."""


def one_after_another(first: Launch, second: Launch) -> Launch:
    """A launch that is two."""

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        first(args, outs)
        second(args, outs)

    return launch


def scatter_part(request: Request) -> Launch:
    """A copy of the first operand, and of the second into the view of that copy."""
    input, src, *where = request.args
    backend, out = request.backend, request.outs[0]
    part = _SCATTERS[request.op].rule(out, *where)
    return one_after_another(copying(backend, out, input), copying(backend, part, src, index=1))


for _op in _SCATTERS:
    prepares(_op, keys.CUDA, deferrable=True)(scatter_part)


@prepares(rearrange._scatter_strided, keys.CUDA, deferrable=True)
def scatter_strided(request: Request) -> Launch:
    """The same for a view of any strides; the result has gaps where the first operand has them."""
    input, src, size, stride, offset = request.args
    backend, out = request.backend, request.outs[0]
    part = out.view(size, stride, out.offset + offset)
    return one_after_another(copying(backend, out, input), copying(backend, part, src, index=1))


@prepares(rearrange.diag_embed, keys.CUDA, deferrable=True)
def diag_embed(request: Request) -> Launch:
    """Zeros, and a copy onto the diagonals."""
    input, offset, dim1, dim2 = request.args
    backend, out = request.backend, request.outs[0]
    zeros = elementwise(backend, out, {"_": input, "value": 0}, Chosen("value"), out.dtype)
    return one_after_another(zeros, copying(backend, views.diagonal.rule(out, offset, dim1, dim2), input))


@prepares(rearrange.repeat_interleave, keys.CUDA, deferrable=True)
def repeat_interleave(request: Request) -> Launch | None:
    """A copy of a view in which each element is as often as it is repeated, in a dimension of its own."""
    input, repeats, dim = request.args[:3]
    out = request.outs[0]
    if input.ndim >= MAX_DIMENSIONS or not out.is_contiguous:
        return None
    at = input.ndim if dim is None or not input.ndim else wrap_dim("repeat_interleave", dim, input.ndim) + 1
    shape = (*input.shape[:at], repeats, *input.shape[at:])
    spread = input.view(shape, (*input.strides[:at], 0, *input.strides[at:]))
    return copying(request.backend, out.view(shape, contiguous_strides(shape)), spread)
