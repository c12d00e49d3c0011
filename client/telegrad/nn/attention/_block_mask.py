"""What a function of positions lets through, kept by blocks, as in ``torch.nn.attention.flex_attention``.

The functions get one position at a time, over which `vmap` maps them; it calls each of them once.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float32, int32
from telegrad_protocol.errors import ArgumentError

from ._block_pictures import picture

_transforms: Any = import_module("telegrad.func")  # func is above this package

MaskFunction = Callable[[Any, Any, Any, Any], Any]
ScoreFunction = Callable[[Any, Any, Any, Any, Any], Any]

DEFAULT_BLOCK_SIZE = 128
TENSORS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
    "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices",
)  # fmt: skip


def at_positions(function_of_them: Callable[..., Any], sizes: tuple[int, ...], device: DeviceLike, *whole: Any) -> Any:
    """Return what a function gives at the positions of ``sizes``, and of ``whole`` tensors of that shape."""
    mapped = function_of_them
    for dim in reversed(range(len(sizes))):
        mapped = _transforms.vmap(
            mapped, (*[0] * len(whole), *(0 if dim == other else None for other in range(len(sizes))))
        )
    arange = function("arange")
    return mapped(*whole, *(arange(size, device=device) for size in sizes))


def create_mask(
    mod_fn: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: DeviceLike = None
) -> Tensor:
    """Return what a function of masks lets through, or of scores leaves finite, as bools of (B, H, Q_LEN, KV_LEN)."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    required = [one for one in inspect.signature(mod_fn).parameters.values() if one.default is one.empty]
    if len(required) == 4:
        mask: Tensor = at_positions(mod_fn, sizes, device)
        return mask
    scores: Any = at_positions(mod_fn, sizes, device, function("zeros")(*sizes, device=device))
    return scores.isneginf().logical_not()  # type: ignore[no-any-return]


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """Let every query see every key: the function of masks of a mask that was given none."""
    return (token_q >= 0) & (token_kv >= 0)


def _sliced_mask_mod_error(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """Refuse to tell what a part of a mask lets through: its positions are not those of the whole."""
    raise ArgumentError(
        "Cannot use mask_mod from a sliced BlockMask: its positions begin elsewhere; set mask_mod to a function that "
        "adds what was left out to the mask_mod of the whole"
    )


class BlockMask:
    """What a mask lets through, for ``flex_attention``; ``shape`` is (B, H, Q_LEN, KV_LEN).

    Rows of blocks list the columns of those that ``mask_mod`` is asked about (``kv_indices``, of which the first
    ``kv_num_blocks`` count), and of those that are seen as a whole (``full_kv_indices``); ``q_indices`` and its like
    list rows by columns.
    """

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None, full_kv_indices: Tensor | None, q_num_blocks: Tensor | None,
        q_indices: Tensor | None, full_q_num_blocks: Tensor | None, full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int], mask_mod: MaskFunction,
    ) -> None:  # fmt: skip
        if kv_indices.ndim < 2:
            raise ArgumentError(f"BlockMask: expected at least 2 dimensions of kv_indices, got {kv_indices._meta}")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise ArgumentError("BlockMask: full_kv_num_blocks and full_kv_indices must both be given, or neither")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self._known: tuple[MaskFunction, Tensor] | None = None

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK_SIZE,
        mask_mod: MaskFunction | None = None, seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:  # fmt: skip
        """Make a mask from the columns of each row of blocks; ``compute_q_blocks`` lists rows by columns, too."""
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        if seq_lengths is None:
            high, wide = kv_indices.shape[-2:]
            seq_lengths = (high * size[0], wide * size[1])
        turned, full_turned = (
            (_turned(kv_num_blocks, kv_indices), _turned(full_kv_num_blocks, full_kv_indices))
            if compute_q_blocks
            else ((None, None), (None, None))
        )
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *turned, *full_turned, size,
            mask_mod or noop_mask,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """Return the number of pairs of positions."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Return the share of what is not computed, in percent; reads how many blocks are."""
        computed: Any = self.kv_num_blocks.sum()
        if self.full_kv_num_blocks is not None:
            computed = computed + self.full_kv_num_blocks.sum()
        return 100 * (1 - float(computed.item()) * math.prod(self.BLOCK_SIZE) / self.numel())

    def to_dense(self) -> Tensor:
        """Return which blocks let anything through: (B, H, rows of blocks, columns of blocks), as int32."""
        partial, full = self._partial_and_full()
        return partial if full is None else partial | full

    def _partial_and_full(self) -> tuple[Tensor, Tensor | None]:
        full, columns = self.full_kv_indices, self.full_kv_num_blocks
        of_full = None if full is None or columns is None else dense_blocks(columns, full)
        return dense_blocks(self.kv_num_blocks, self.kv_indices), of_full

    def seen(self) -> Tensor:
        """Return the pairs of positions that are let through: bools of ``shape``."""
        if self._known is None or self._known[0] is not self.mask_mod:
            self._known = (self.mask_mod, self._asked())
        return self._known[1]

    def _asked(self) -> Tensor:
        sizes = (*(1,) * (4 - len(self.shape)), *self.shape)
        mask: Any = at_positions(self.mask_mod, sizes, self.kv_indices.device)
        partial, full = (None if blocks is None else self._spread(blocks) for blocks in self._partial_and_full())
        return mask & partial if full is None else mask & partial | full  # type: ignore[no-any-return]

    def _spread(self, blocks: Any) -> Any:
        """Return bools of positions, by those of their blocks."""
        arange = function("arange")
        sides = zip(self.seq_lengths, self.BLOCK_SIZE, strict=True)
        rows, columns = (arange(length, device=blocks.device) // size for length, size in sides)
        return blocks.bool().index_select(-2, rows).index_select(-1, columns)

    def __getitem__(self, index: Any) -> BlockMask:
        """Return the mask of some samples, heads and rows of blocks, whose ``mask_mod`` is to be set."""
        listed = index if isinstance(index, tuple) else (index,)
        chosen = tuple(slice(one, one + 1 or None) if isinstance(one, int) else one for one in listed)
        parts = {name: None if t is None else t[chosen] for name, t in self._tensors().items() if "kv" in name}
        return self._like(parts, _sliced_mask_mod_error, self.seq_lengths)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Return the mask of the first queries and keys."""
        lengths = (new_q_len, new_kv_len)
        high, wide = (-(-length // size) for length, size in zip(lengths, self.BLOCK_SIZE, strict=True))
        kept = [(None, None) if t is None else ordered_blocks(t[..., :high, :wide]) for t in self._partial_and_full()]
        names = [name for name in TENSORS if "kv" in name]
        return self._like(dict(zip(names, itertools.chain(*kept), strict=True)), self.mask_mod, lengths)

    def _like(self, blocks: dict[str, Any], mask_mod: MaskFunction, lengths: tuple[int, int]) -> BlockMask:
        """Return a mask of other blocks, which lists what this one does."""
        return BlockMask.from_kv_blocks(
            **blocks, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=mask_mod, seq_lengths=lengths,
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def _tensors(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in TENSORS}

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Return the sizes, the tensors, the size of blocks and the function; without ``flatten`` sizes in pairs."""
        sizes, blocks = (tuple(pair) if flatten else (pair,) for pair in (self.seq_lengths, self.BLOCK_SIZE))
        no_order_of_writes = (None,) * 4
        return (*sizes, *self._tensors().values(), *no_order_of_writes, *blocks, self.mask_mod)

    def to(self, device: DeviceLike) -> BlockMask:
        """Return the mask with its tensors on another device; what ``mask_mod`` refers to stays where it is."""
        moved: dict[str, Any] = {name: None if t is None else t.to(device) for name, t in self._tensors().items()}
        return BlockMask(self.seq_lengths, **moved, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Return pictures of the blocks of ``limit`` samples and heads, of ``grid_size`` squares; -1 is all."""
        return picture(self.to_dense(), grid_size, limit)

    def __str__(self) -> str:
        head = f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n"
        return f"{head}{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        told: dict[str, Any] = {name: None if t is None else t.shape for name, t in self._tensors().items()}
        told |= {"BLOCK_SIZE": self.BLOCK_SIZE, "shape": self.shape, "sparsity": f"{self.sparsity():.2f}%"}
        told["mask_mod"] = getattr(self.mask_mod, "__name__", self.mask_mod)
        return "\n".join(["BlockMask(", ",\n".join(f"    {name}={value}" for name, value in told.items()), ")"])


def dense_blocks(counts: Tensor, indices: Any) -> Tensor:
    """Return a matrix of rows and columns of blocks, as int32, that is 1 where the first indices of a row are."""
    columns = indices.shape[-1]
    listed = function("arange")(columns, device=indices.device) < counts.unsqueeze(-1)
    place = function("where")(listed, indices, columns).long()
    zeros = function("zeros")(*indices.shape[:-1], columns + 1, dtype=int32, device=indices.device)
    return zeros.scatter(-1, place, 1)[..., :columns]  # type: ignore[no-any-return]


def ordered_blocks(dense: Any) -> tuple[Tensor, Tensor]:
    """Return how many blocks each row of a matrix has, and their columns, followed by those of the others."""
    return dense.sum(-1).int(), dense.argsort(dim=-1, descending=True, stable=True).int()


def _turned(counts: Tensor | None, indices: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    if counts is None or indices is None:
        return None, None
    return ordered_blocks(dense_blocks(counts, indices).transpose(-2, -1))


def create_block_mask(
    mask_mod: MaskFunction, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: DeviceLike = None,
    BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK_SIZE, _compile: bool = False, *,
    separate_full_blocks: bool = True,
) -> BlockMask:  # fmt: skip
    """Return a mask for ``flex_attention``; None for ``B`` and ``H`` makes one for all samples or heads."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    blocks = _by_blocks(mask, size)
    some, every = blocks.amax((3, 5)).int(), blocks.amin((3, 5)).int()
    full, full_indices = ordered_blocks(every) if separate_full_blocks else (None, None)
    partial, indices = ordered_blocks(some - every if separate_full_blocks else some)
    block_mask = BlockMask.from_kv_blocks(
        partial, indices, full, full_indices, size, mask_mod, (Q_LEN, KV_LEN)
    )  # fmt: skip
    block_mask._known = (mask_mod, mask)
    return block_mask


def _by_blocks(mask: Tensor, size: tuple[int, int]) -> Any:
    """Return a mask as numbers of (B, H, rows of blocks, rows, columns of blocks, columns), with zeros at the ends."""
    lengths, (rows, columns) = mask.shape[-2:], size
    high, wide = (-(-length // block) for length, block in zip(lengths, size, strict=True))
    extra = (0, wide * columns - lengths[1], 0, high * rows - lengths[0])
    padded = function("pad")(mask.to(float32), extra)
    return padded.reshape(*mask.shape[:2], high, rows, wide, columns)
