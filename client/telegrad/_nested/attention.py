"""Attention among the rows of each element of a batch: padded on the server, with what is padding left out of sight."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from .functions import implements, run
from .padding import gathered, packed, padded, total_of
from .tensor import NestedTensor


@implements("scaled_dot_product_attention")
def attention(
    query: Any, key: Any, value: Any, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> NestedTensor:  # fmt: skip
    """Attend from (n, h, j, e) to keys and values (n, h, k, e), in every element of the batch to its own rows alone."""
    _check(query, key, value, attn_mask)
    source = query.contiguous() if query._ragged.lengths is not None else query
    rows, columns = (max(tensor._ragged.longest_length(), 1) for tensor in (source, key))
    q = padded(source, 0, rows)
    k, v = (_sequences(tensor, columns) for tensor in (key, value))
    mask, hint = _mask(source, key, rows, columns, is_causal)
    dims = 4 - q.ndim
    if dims:  # one head without a dimension of its own
        q, k, v = (tensor.unsqueeze(1) for tensor in (q, k, v))
    attended = run("scaled_dot_product_attention", q, k, v, mask, dropout_p, hint, scale=scale, enable_gqa=enable_gqa)
    return packed(attended.squeeze(1) if dims else attended, source._ragged, total_of(source), source._dim)


def _sequences(tensor: NestedTensor, length: int) -> Tensor:
    """Return padded keys or values; the padding holds nothing that could become part of a sum as NaN."""
    if tensor._ragged.lengths is None:
        return padded(tensor, 0, length)
    rows = gathered(tensor, length)
    empty = ~tensor._ragged.filled(length)
    shape = [1] * rows.ndim
    shape[0], shape[tensor._dim] = tensor._ragged.count, length
    return rows.masked_fill(empty.reshape(shape), 0)


def _mask(
    query: NestedTensor, key: NestedTensor, rows: int, columns: int, is_causal: bool
) -> tuple[Tensor | None, bool]:
    """Return the mask of what is seen, and whether attention is told to be causal instead.

    Padding follows the elements, so that a causal query never sees it where keys are divided as queries are. A query
    of an element without keys sees the first padded one.
    """
    if key._ragged.is_even() or (is_causal and query._ragged.size == key._ragged.size):
        return None, is_causal
    seen = key._ragged.filled(columns, 1).reshape(-1, 1, 1, columns)
    if not is_causal:
        return seen, False
    causal = run("ones", (rows, columns), dtype=seen.dtype, device=seen.device).tril()
    return seen & causal, False


def _check(query: Any, key: Any, value: Any, mask: Tensor | None) -> None:
    tensors = (query, key, value)
    if not all(isinstance(tensor, NestedTensor) for tensor in tensors):
        nested = [tensor.is_nested for tensor in tensors]
        raise ArgumentError(f"Expected query, key, and value to be nested tensors, but got is_nested: {nested}")
    if len({tensor.dtype for tensor in tensors}) > 1 or len({tensor.device for tensor in tensors}) > 1:
        shown = [f"{tensor.dtype} on {tensor.device}" for tensor in tensors]
        raise ArgumentError(f"Expected query, key, and value to have one dtype and device, but got {shown}")
    if any(tensor.ndim not in (3, 4) for tensor in tensors) or len({tensor.ndim for tensor in tensors}) > 1:
        dims = [tensor.ndim for tensor in tensors]
        raise ArgumentError(f"Expected query, key, and value of 3 or 4 dimensions, but got {dims}")
    if len({tensor._dim for tensor in tensors}) > 1 or query._dim != query.ndim - 2:
        dims = [tensor._dim for tensor in tensors]
        raise ArgumentError(
            f"Expected query, key, and value to be ragged in the last dimension but one, but got ragged dims {dims}"
        )
    if mask is not None:
        raise ArgumentError("scaled_dot_product_attention: masks are not supported for nested tensors")
