"""Reductions, scans, and searches along a dimension."""

from __future__ import annotations

from telegrad_protocol.ops import reduce as ops

from .. import functional as F  # noqa: N812 - the field's name
from ..operators import implements


def _axis(dim):
    return None if dim is None or dim == () else dim


def restore(grad, input_meta, dim, keepdim):
    """The gradient of a reduction in the input's shape: reduced dimensions put back and repeated."""
    kept = grad if keepdim else F.reshape(grad, ops.reduced("sum", input_meta, dim, True))
    return F.expand(kept, input_meta.shape)


@implements(ops.sum, input=lambda grad, input_meta, dim, keepdim: restore(grad, input_meta, dim, keepdim))
def sum(xp, input, dim, keepdim, *, dtype, out):
    xp.sum(input, axis=_axis(dim), keepdims=keepdim, dtype=out.dtype, out=out)
