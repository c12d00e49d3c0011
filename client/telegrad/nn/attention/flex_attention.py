"""Attention whose scores a function changes, as in ``torch.nn.attention.flex_attention``.

The functions get whole tensors of positions that broadcast against each other, where PyTorch's get one position: what
they compute element by element is the same. The scores are held in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad._functions.creation import where
from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float32, float64
from telegrad_protocol.errors import NotSupportedError, ShapeError

__all__ = ["BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks"]
_DEFAULT_SPARSE_BLOCK_SIZE = 128
"""PyTorch's size of blocks, which packages import."""


class AuxRequest(NamedTuple):
    """What a call of PyTorch's wants beside the result; `flex_attention` here gives the logarithms of the sums."""

    lse: bool = False
    max_scores: bool = False


MaskFunction = Callable[[Any, Any, Any, Any], Any]
ScoreFunction = Callable[[Any, Any, Any, Any, Any], Any]


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """Let every query see every key."""
    return (token_q >= 0) & (token_kv >= 0)


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


def _positions(sizes: tuple[int, ...], device: DeviceLike) -> list[Tensor]:
    """Return the positions along each dimension, in shapes that broadcast to ``sizes``."""
    arange = function("arange")
    last = len(sizes) - 1
    return [arange(size, device=device).reshape(-1, *[1] * (last - dim)) for dim, size in enumerate(sizes)]


def create_mask(
    mod_fn: MaskFunction, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: DeviceLike = None
) -> Tensor:
    """Return what a mask lets through, as bools of (B, H, Q_LEN, KV_LEN)."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    mask: Tensor = mod_fn(*_positions(sizes, device)).expand(sizes)
    return mask


class BlockMask:
    """What a mask lets through, for ``flex_attention``; ``shape`` is (B, H, Q_LEN, KV_LEN)."""

    def __init__(
        self, mask_mod: MaskFunction, mask: Tensor, block_size: tuple[int, int], separate_full_blocks: bool = True
    ) -> None:
        self.mask_mod = mask_mod
        self.BLOCK_SIZE = block_size
        self._mask = mask
        self._separate_full_blocks = separate_full_blocks

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._mask.shape)

    @property
    def seq_lengths(self) -> tuple[int, int]:
        return self.shape[-2], self.shape[-1]

    def to_dense(self) -> Tensor:
        """Return which blocks let anything through: (B, H, rows of blocks, columns of blocks), as int32."""
        return self._blocks().amax((3, 5)).int()  # type: ignore[no-any-return]

    @property
    def kv_num_blocks(self) -> Tensor:
        """How many blocks of each row are computed with the mask: (B, H, rows of blocks), as int32."""
        return _counts(self._partial())

    @property
    def kv_indices(self) -> Tensor:
        """Columns of the blocks that `kv_num_blocks` counts, followed by those of the other blocks of the row."""
        return _indices(self._partial())

    @property
    def full_kv_num_blocks(self) -> Tensor | None:
        """How many blocks of each row let everything through; None where they are not kept apart."""
        return _counts(self._full()) if self._separate_full_blocks else None

    @property
    def full_kv_indices(self) -> Tensor | None:
        """Columns of the blocks that `full_kv_num_blocks` counts, followed by those of the other blocks."""
        return _indices(self._full()) if self._separate_full_blocks else None

    @property
    def q_num_blocks(self) -> Tensor:
        """How many blocks of each column are computed with the mask: (B, H, columns of blocks), as int32."""
        return _counts(self._partial().transpose(-2, -1))

    @property
    def q_indices(self) -> Tensor:
        """Rows of the blocks that `q_num_blocks` counts, followed by those of the other blocks of the column."""
        return _indices(self._partial().transpose(-2, -1))

    @property
    def full_q_num_blocks(self) -> Tensor | None:
        """How many blocks of each column let everything through; None where they are not kept apart."""
        return _counts(self._full().transpose(-2, -1)) if self._separate_full_blocks else None

    @property
    def full_q_indices(self) -> Tensor | None:
        """Rows of the blocks that `full_q_num_blocks` counts, followed by those of the other blocks."""
        return _indices(self._full().transpose(-2, -1)) if self._separate_full_blocks else None

    def _blocks(self) -> Any:
        rows, columns = self.BLOCK_SIZE
        high, wide = (-(-size // block) for size, block in zip(self.seq_lengths, self.BLOCK_SIZE, strict=True))
        extra = (0, wide * columns - self.shape[-1], 0, high * rows - self.shape[-2])
        padded = function("pad")(self._mask.to(float32), extra)
        return padded.reshape(*self.shape[:2], high, rows, wide, columns)

    def _full(self) -> Tensor:
        return self._blocks().amin((3, 5)).int()  # type: ignore[no-any-return]

    def _partial(self) -> Tensor:
        return self.to_dense() - self._full() if self._separate_full_blocks else self.to_dense()

    def sparsity(self) -> float:
        """Return the share of blocks that let nothing through, in percent; reads it."""
        return 100.0 * (1.0 - float(self.to_dense().float().mean().item()))

    def to(self, device: DeviceLike) -> BlockMask:
        """Return the mask on a device."""
        return BlockMask(self.mask_mod, self._mask.to(device), self.BLOCK_SIZE, self._separate_full_blocks)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, block_size={self.BLOCK_SIZE})"


def _counts(blocks: Any) -> Tensor:
    return blocks.sum(-1).int()  # type: ignore[no-any-return]


def _indices(blocks: Any) -> Tensor:
    return blocks.argsort(dim=-1, descending=True, stable=True).int()  # type: ignore[no-any-return]


def create_block_mask(
    mask_mod: MaskFunction, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: DeviceLike = None,
    BLOCK_SIZE: int | tuple[int, int] = 128, _compile: bool = False, *, separate_full_blocks: bool = True,
) -> BlockMask:  # fmt: skip
    """Return a mask for ``flex_attention``; None for ``B`` and ``H`` makes one for all samples or heads."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    return BlockMask(mask_mod, mask, size, separate_full_blocks)


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreFunction | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None,
) -> Any:  # fmt: skip
    """Attention of (b, h, l, e) to (b, h, s, e), whose scores are ``score_mod(score, b, h, q_idx, kv_idx)``.

    With ``return_lse`` also the logarithm of each row's sum of exponentials: (b, h, l).
    """
    if return_aux is not None:
        raise NotSupportedError("flex_attention: return_aux is not served; return_lse=True gives the logarithms")
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise ShapeError(f"flex_attention: expected 4 dimensions, got {query._meta}, {key._meta} and {value._meta}")
    heads = query.shape[1]
    if enable_gqa and heads % key.shape[1] == 0:
        key, value = (t.repeat_interleave(heads // t.shape[1], 1) for t in (key, value))
    elif key.shape[1] != heads or value.shape[1] != heads:
        raise ShapeError(f"flex_attention: {key._meta} has not the heads of {query._meta}; is it enable_gqa=True?")
    wide = float64 if query.dtype is float64 else float32
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores: Any = query.to(wide).matmul(key.to(wide).transpose(-2, -1)) * factor
    if score_mod is not None:
        scores = score_mod(scores, *_positions(tuple(scores.shape), scores.device))
    if block_mask is not None:
        seen = block_mask._mask[..., : query.shape[2], : key.shape[2]]
        scores = where(seen, scores, -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - where(lse == -math.inf, 0.0, lse).unsqueeze(-1)).exp()
    result = weights.to(value.dtype).matmul(value)
    return (result, lse) if return_lse else result
