"""Scaled dot product attention: the batch becomes a part of the first dimension of queries, keys and values."""

from __future__ import annotations

from typing import Any

from ..case import Case, Operand, rule


@rule("scaled_dot_product_attention")
def _attention(case: Case) -> Any:
    query, key, value, mask, *rest = case.args
    ndim = query.ndim
    if ndim < 3 or any([operand.ndim != ndim for operand in (key, value)]):
        return NotImplemented
    tensors = [_folded(operand) for operand in (query, key, value)]
    result = case.call(*tensors, _folded_mask(case, query, mask), *rest)
    return result.unflatten(0, (case.size, -1))


@rule("_attention_backward")
def _attention_backward(case: Case) -> Any:
    grad, query, key, value, mask, output, logsumexp, *rest = case.args
    tensors = [_folded(operand) for operand in (grad, query, key, value)]
    statistics = [_folded(operand) for operand in (output, logsumexp)]
    gradients = case.call(*tensors, _folded_mask(case, query, mask), *statistics, *rest)
    return tuple([gradient.unflatten(0, (case.size, -1)) for gradient in gradients])


def _folded(operand: Operand) -> Any:
    return operand.front.flatten(0, 1)


def _folded_mask(case: Case, query: Operand, mask: Operand | None) -> Any:
    """Return a mask for queries of which the batch is a part; what all share is broadcast."""
    if mask is None or not (mask.is_batched or mask.ndim > 2):
        return None if mask is None else mask.tensor
    shape = (*query.shape[:-2], *mask.shape[-2:])
    return mask.padded(query.ndim).expand(case.size, *shape).flatten(0, 1)
