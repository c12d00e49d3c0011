"""Attention whose scores a function changes, as in ``torch.nn.attention.flex_attention``; scores are held in memory."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypedDict

from telegrad._functions.creation import where
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float32, float64
from telegrad_protocol.errors import ArgumentError, ShapeError

from ._block_mask import (
    DEFAULT_BLOCK_SIZE,
    BlockMask,
    MaskFunction,
    ScoreFunction,
    at_positions,
    create_block_mask,
    create_mask,
    noop_mask,
)

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask",
    "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip
_DEFAULT_SPARSE_BLOCK_SIZE = DEFAULT_BLOCK_SIZE
_mask_mod_signature = MaskFunction
_score_mod_signature = ScoreFunction
"""Names that packages import, though PyTorch does not document them."""


class FlexKernelOptions(TypedDict, total=False):
    """How PyTorch's kernels are to be launched: annotates ``kernel_options``, which have no effect here."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_M1: int
    BLOCK_N1: int
    BLOCK_M2: int
    BLOCK_N2: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    kpack: int
    matrix_instr_nonkdim: int
    waves_per_eu: int
    BACKEND: str


class AuxRequest(NamedTuple):
    """What `flex_attention` is to return beside the result: logarithms of sums, largest scores."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for of the scores of each row: (b, h, l); None what was not."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def and_masks(*mask_mods: MaskFunction) -> MaskFunction:
    """Return the mask of what all masks let through."""

    def both(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = noop_mask(b, h, q_idx, kv_idx)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return both


def or_masks(*mask_mods: MaskFunction) -> MaskFunction:
    """Return the mask of what any mask lets through."""

    def either(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = noop_mask(b, h, q_idx, kv_idx).logical_not()
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return either


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreFunction | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None,
) -> Any:  # fmt: skip
    """Attention of (b, h, l, e) to (b, h, s, e), whose scores are ``score_mod(score, b, h, q_idx, kv_idx)``.

    With ``return_lse`` also the logarithm of each row's sum of exponentials: (b, h, l). ``return_aux`` asks for it and
    for the largest scores.
    """
    if return_lse and return_aux is not None:
        raise ArgumentError("flex_attention: return_lse and return_aux are both given; return_aux=AuxRequest(lse=True)")
    key, value = _heads(query, key, value, enable_gqa)
    wide = float64 if query.dtype is float64 else float32
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores: Any = query.to(wide).matmul(key.to(wide).transpose(-2, -1)) * factor
    if score_mod is not None:
        scores = at_positions(score_mod, tuple(scores.shape), scores.device, scores)
    if block_mask is not None:
        scores = where(_seen(block_mask, query, key), scores, -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - where(lse == -math.inf, 0.0, lse).unsqueeze(-1)).exp()
    result = weights.to(value.dtype).matmul(value)
    if return_aux is not None:
        return result, AuxOutput(lse if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None)
    return (result, lse) if return_lse else result


def _heads(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[Tensor, Tensor]:
    """Return keys and values for each head of the queries."""
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise ShapeError(f"flex_attention: expected 4 dimensions, got {query._meta}, {key._meta} and {value._meta}")
    heads = query.shape[1]
    if enable_gqa and heads % key.shape[1] == 0:
        key, value = (t.repeat_interleave(heads // t.shape[1], 1) for t in (key, value))
    elif key.shape[1] != heads or value.shape[1] != heads:
        raise ShapeError(f"flex_attention: {key._meta} has not the heads of {query._meta}; is it enable_gqa=True?")
    return key, value


def _seen(block_mask: BlockMask, query: Tensor, key: Tensor) -> Tensor:
    lengths = (query.shape[2], key.shape[2])
    if tuple(block_mask.shape[-2:]) != lengths:
        raise ArgumentError(
            f"flex_attention: block_mask was created for block_mask.shape={block_mask.shape} but got "
            f"q_len={lengths[0]} and kv_len={lengths[1]}; make another, or take the first positions of a larger one by "
            "_adjust"
        )
    return block_mask.seen()
