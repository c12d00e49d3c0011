"""``split``, ``chunk`` and ``unbind``: several views of one tensor."""

from __future__ import annotations

from itertools import pairwise

from server.engine import functional as F
from server.engine.registry import composite, derive
from telegrad_protocol.layout import wrap_dim
from telegrad_protocol.ops import splitting as ops

derive(ops.unbind, input=lambda grads, dim: F.stack(grads, dim))
derive(ops.split, tensor=lambda grads, dim: F.cat(grads, dim))
derive(ops.split_with_sizes, input=lambda grads, dim: F.cat(grads, dim))
derive(ops.chunk, input=lambda grads, dim: F.cat(grads, dim))


@composite(ops.tensor_split)
def tensor_split(input, indices_or_sections, dim):
    at = wrap_dim("tensor_split", dim, input.meta.ndim)
    cuts = ops.cuts(input.meta, indices_or_sections, at)
    return tuple(F.slice(input, at, a, b) for a, b in pairwise(cuts))
