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
    if mask is not None:
        shape = (*query.shape[:-2], *mask.shape[-2:])
        mask = (
            mask.padded(ndim).expand(case.size, *shape).flatten(0, 1)
            if mask.is_batched or mask.ndim > 2
            else mask.tensor
        )
    result = case.call(*tensors, mask, *rest)
    return result.unflatten(0, (case.size, -1))


def _folded(operand: Operand) -> Any:
    return operand.front.flatten(0, 1)
