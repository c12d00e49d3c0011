"""Indices of stored elements: positions, order, and changes between coordinates and compressed rows."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad._functions.numeric.uniques import unique
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes

from .functions import run


def arange(count: int, like: Tensor) -> Tensor:
    """Return 0, 1, ... as int64 where another tensor is."""
    numbers: Tensor = run("arange", count, dtype=dtypes.int64, device=like.device)
    return numbers


def zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return zeros of the type of another tensor, where it is."""
    made: Tensor = run("zeros", tuple(shape), dtype=like.dtype, device=like.device)
    return made


def flat(indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the row-major positions of coordinates: (d, z) -> (z,)."""
    if not sizes:
        return run("zeros", (indices.shape[1],), dtype=dtypes.int64, device=indices.device)  # type: ignore[no-any-return]
    position = indices[0]
    for dim, size in enumerate(sizes[1:], 1):
        position = position * size + indices[dim]
    return position


def coordinates(positions: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the coordinates of row-major positions: (z,) -> (d, z)."""
    if not sizes:
        return run("zeros", (0, positions.shape[0]), dtype=dtypes.int64, device=positions.device)  # type: ignore[no-any-return]
    lines = []
    for size in reversed(sizes[1:]):
        lines.append(run("remainder", positions, max(size, 1)))
        positions = run("div", positions, max(size, 1), rounding_mode="floor")
    return run("stack", [positions, *reversed(lines)])  # type: ignore[no-any-return]


def starts(majors: Tensor, count: int, dtype: dtypes.DType = dtypes.int64) -> Tensor:
    """Return where each of ``count`` lines begins in sorted line numbers: (z,) -> (count + 1,)."""
    found: Tensor = run("searchsorted", majors.contiguous(), arange(count + 1, majors))
    return found.to(dtype)


def expanded(compressed: Tensor, count: int) -> Tensor:
    """Return the line number of each of ``count`` stored elements: (..., m + 1) -> (..., count)."""
    ends = compressed.narrow(-1, 1, compressed.shape[-1] - 1).to(dtypes.int64).contiguous()
    places = arange(count, compressed).expand(*compressed.shape[:-1], count).contiguous()
    return run("searchsorted", ends, places, right=True)  # type: ignore[no-any-return]


def summed(values: Tensor, places: Tensor, count: int) -> Tensor:
    """Return ``count`` rows, each the sum of those values whose place it is; of booleans, whether any is true."""
    if values.dtype is dtypes.bool_:
        return summed(values.to(dtypes.int32), places, count) != 0
    target = zeros((count, *values.shape[1:]), values)
    return run("index_add", target, 0, places, values)  # type: ignore[no-any-return]


def merged(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the different positions in ascending order, and which of them each position is; one round trip."""
    keys, places = unique(positions, return_inverse=True)
    return keys, places
