"""Maps by which Hopper's copy engine finds the tiles of a tensor: encoded by the driver, and kept by address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

from cuda.bindings import driver

from telegrad_protocol import dtypes
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.meta import Meta

from .hopper_text import PANEL

_TYPES = driver.CUtensorMapDataType
_NAMES = {
    dtypes.float16: _TYPES.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    dtypes.bfloat16: _TYPES.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
}
_BYTES = 128
_KEPT = 256
"""Addresses that a tensor of one plan usually has, and more: the allocator hands the same ones out again."""


class TileMapError(TelegradError):
    """The driver refuses to describe a tensor to the copy engine."""


def maps_of(meta: Meta, rows: int) -> Callable[[int], bytes]:
    """The map of a tensor (n, heads, length, width) of halves by its address, for tiles of so many rows.

    The width is a multiple of ``PANEL``, and rows begin at multiples of 16 bytes.
    """
    size, (batch, heads, length, width) = meta.dtype.itemsize, meta.shape
    steps = [step if extent > 1 else width for extent, step in zip(meta.shape[:3], meta.strides[:3], strict=True)]
    long, word = driver.cuuint64_t, driver.cuuint32_t
    shape = [long(extent) for extent in (width, length, heads, batch)]
    strides = [long(step * size) for step in reversed(steps)]
    box, every = [word(PANEL), word(rows), word(1), word(1)], [word(1)] * 4

    @lru_cache(maxsize=_KEPT)
    def encode(address: int) -> bytes:
        status, tensor_map = driver.cuTensorMapEncodeTiled(
            _NAMES[meta.dtype], 4, address, shape, strides, box, every,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )  # fmt: skip
        if status != driver.CUresult.CUDA_SUCCESS:
            raise TileMapError(f"a map of tiles of {rows} rows of {meta} at {address:#x}: {status}")
        return ctypes.string_at(tensor_map.getPtr(), _BYTES)

    return encode
