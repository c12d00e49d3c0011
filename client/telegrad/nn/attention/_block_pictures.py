"""Pictures of masks of blocks: a full square where all blocks are computed, a shaded one where some are."""

from __future__ import annotations

import itertools
import math
from typing import Any

from telegrad._tensor.tensor import Tensor

_LEFT_OUT = (
    "...", "To print out more, set BlockMask.to_string(limit=N)",
    "You can also index (BlockMask[batch, head]) to choose a specific batch or head",
)  # fmt: skip


def picture(dense: Tensor, grid_size: int | tuple[int, int], limit: int) -> str:
    """Return a picture of each matrix of ``dense``, which is read, on grids of that many rows and columns."""
    blocks: Any = dense.numpy()
    *batch, rows, columns = blocks.shape
    grid = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
    steps = [
        max(1, math.ceil(size / most)) if most > 0 else 1
        for size, most in zip((rows, columns), grid, strict=True)
    ]  # fmt: skip
    every = list(itertools.product(*map(range, batch)))
    pictures = [f"{index}\n{_matrix(blocks[index], *steps)}" for index in every[:limit]]
    return "\n".join([*pictures, *(_LEFT_OUT if len(every) > limit else ())])


def _matrix(blocks: Any, high: int, wide: int) -> str:
    rows, columns = (range(0, size, step) for size, step in zip(blocks.shape, (high, wide), strict=True))
    lines = (
        "".join(2 * _square(float(blocks[row : row + high, column : column + wide].mean())) for column in columns)
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def _square(share: float) -> str:
    return {0.0: " ", 1.0: "█"}.get(share, "░")
