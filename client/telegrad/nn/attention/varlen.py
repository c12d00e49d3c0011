"""Attention within sequences of other lengths that lie one after the other, as in ``torch.nn.attention.varlen``."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad_protocol.errors import NotSupportedError, ShapeError

__all__ = ["AuxRequest", "varlen_attn"]


class AuxRequest(NamedTuple):
    """What is wanted beside the result: ``lse`` are the logarithms of the sums of exponentials of scores."""

    lse: bool = False


def varlen_attn(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None, max_q: int, max_k: int, *,
    return_aux: AuxRequest | None = None, scale: float | None = None, window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False, seqused_k: Tensor | None = None, block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """Attend within each sequence: queries are (all positions, heads, size), sequences begin at ``cu_seq_q``.

    The begins are read, in one round trip for each tensor of them. A window of (left, right) positions around the last
    aligned position is seen, -1 stands for all. Raises NotSupportedError for pages of a cache.
    """
    if seqused_k is not None or block_table is not None:
        raise NotSupportedError(
            "varlen_attn: pages of a cache (seqused_k, block_table) are not supported; join the keys"
        )
    ends_q = cu_seq_q.tolist()
    ends_k = ends_q if cu_seq_k is None else cu_seq_k.tolist()
    if len(ends_q) != len(ends_k) or ends_q[-1] != query.size(0) or ends_k[-1] != key.size(0):
        raise ShapeError(f"varlen_attn: the ends {ends_q} and {ends_k} are not those of {query._meta} and {key._meta}")
    results, sums = [], []
    for (first, last), (start, stop) in zip(pairwise(ends_q), pairwise(ends_k), strict=True):
        q, k, v = (part.transpose(0, 1) for part in (query[first:last], key[start:stop], value[start:stop]))
        mask = _window(q, k, window_size)
        attended = F.scaled_dot_product_attention(q[None], k[None], v[None], mask, scale=scale, enable_gqa=enable_gqa)
        results.append(attended[0].transpose(0, 1))
        if return_aux is not None and return_aux.lse:
            sums.append(_log_sums(q, k, mask, scale))
    joined: Tensor = function("cat")(results)
    return (joined, function("cat")(sums, 1)) if sums else joined


def _window(q: Tensor, k: Tensor, window_size: tuple[int, int]) -> Tensor | None:
    """Return which keys (columns) a query (row) sees, None for all; the last query stands at the last key."""
    left, right = window_size
    if left < 0 and right < 0:
        return None
    arange = function("arange")
    here = arange(q.size(1), device=q.device)[:, None] + (k.size(1) - q.size(1))
    there = arange(k.size(1), device=q.device)[None]
    seen = there >= (here - left if left >= 0 else 0)
    return seen & (there <= here + right) if right >= 0 else seen.expand(q.size(1), k.size(1))  # type: ignore[no-any-return]


def _log_sums(q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Return log(sum(exp(scores))) of each query: (heads, positions)."""
    keys = k.repeat_interleave(q.size(0) // k.size(0), 0) if k.size(0) != q.size(0) else k
    scores = q.float() @ keys.float().transpose(1, 2) * (q.size(-1) ** -0.5 if scale is None else scale)
    return (scores if mask is None else scores.masked_fill(~mask, -float("inf"))).logsumexp(-1)
