"""Contracts of operations that show a tensor as several views."""

from __future__ import annotations

from itertools import accumulate, pairwise

from telegrad_protocol.errors import ArgumentError, DimensionError, ShapeError
from telegrad_protocol.layout import Size, wrap_dim
from telegrad_protocol.meta import Meta

from .contract import alias, op
from .views import select, slice, sliced

MOST_RESULTS = 1 << 18
"""A tensor may show more views than there is memory to describe; these are refused."""


def _check_count(name: str, count: int, input: Meta) -> None:
    if count > MOST_RESULTS:
        raise ArgumentError(f"{name}: {count} results of {input} are too many, at most {MOST_RESULTS} are possible")


@op(view_of="input")
def unbind(input: Meta, dim: int = 0) -> tuple[Meta, ...]:
    """Return the views of all indices of dimension ``dim``, which is removed."""
    at = wrap_dim("unbind", dim, input.ndim)
    if not input.ndim:
        raise DimensionError("unbind: Dimension specified as 0 but tensor has no dimensions")
    _check_count("unbind", input.shape[at], input)
    return tuple(select.rule(input, at, i) for i in range(input.shape[at]))


def pieces(input: Meta, at: int, lengths: Size | list[int]) -> tuple[Meta, ...]:
    """Return the views of consecutive ``lengths`` along a dimension."""
    starts = [0, *accumulate(lengths)][: len(lengths)]
    return tuple(sliced(input, at, start, length) for start, length in zip(starts, lengths, strict=True))


def sections(name: str, input: Meta, split_size: int | Size, dim: int) -> tuple[int, Size]:
    """Return the dimension, and the lengths that ``split`` cuts it into."""
    at = wrap_dim(name, dim, input.ndim)
    if not input.ndim:
        raise ShapeError(f"{name}: a 0-d tensor has no dimension to split")
    size = input.shape[at]
    if not isinstance(split_size, int):
        if min(split_size, default=0) < 0 or sum(split_size) != size:
            raise ShapeError(
                f"{name}: sections {list(split_size)} do not add up to size {size} of dimension {at} of {input}"
            )
        return at, split_size
    if split_size < 0 or (split_size == 0 and size):
        raise ShapeError(f"{name}: pieces of {split_size} elements do not make up dimension {at} of {input}")
    full, rest = divmod(size, split_size) if split_size else (0, 0)
    _check_count(name, full, input)
    lengths = (split_size,) * full + ((rest,) if rest else ())
    return at, lengths or (0,)


@op(view_of="tensor")
def split(tensor: Meta, split_size_or_sections: int | Size, dim: int = 0) -> tuple[Meta, ...]:
    """Split along ``dim`` into views of one length, or of the given lengths."""
    return pieces(tensor, *sections("split", tensor, split_size_or_sections, dim))


@op(view_of="input")
def split_with_sizes(input: Meta, split_sizes: Size, dim: int = 0) -> tuple[Meta, ...]:
    """Split along ``dim`` into views of the given lengths."""
    return pieces(input, *sections("split_with_sizes", input, split_sizes, dim))


@op(view_of="input")
def chunk(input: Meta, chunks: int, dim: int = 0) -> tuple[Meta, ...]:
    """Split along ``dim`` into at most ``chunks`` views of equal length; the last one may be shorter."""
    if chunks <= 0:
        raise ArgumentError(f"chunk: the number of chunks must be positive, got {chunks}")
    at = wrap_dim("chunk", dim, input.ndim)
    if not input.ndim:
        raise ShapeError("chunk: a 0-d tensor has no dimension to split")
    size = input.shape[at]
    if not size:
        _check_count("chunk", chunks, input)
        return pieces(input, at, (0,) * chunks)
    return pieces(input, *sections("chunk", input, -(-size // chunks), dim))


def cuts(input: Meta, indices_or_sections: int | Size, at: int) -> Size:
    """Return the start and end positions that ``tensor_split`` cuts at."""
    size = input.shape[at]
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise ArgumentError(f"tensor_split: the number of sections must be positive, got {indices_or_sections}")
        _check_count("tensor_split", indices_or_sections, input)
        small, longer = divmod(size, indices_or_sections)
        return tuple(small * i + min(i, longer) for i in range(indices_or_sections + 1))
    return (0, *indices_or_sections, size)


@op(view_of="input")
def tensor_split(input: Meta, indices_or_sections: int | Size, dim: int = 0) -> tuple[Meta, ...]:
    """Split along ``dim`` at the given indices, or into so many views of nearly equal length."""
    at = wrap_dim("tensor_split", dim, input.ndim)
    if not input.ndim:
        raise ShapeError("tensor_split: a 0-d tensor has no dimension to split")
    at_cuts = cuts(input, indices_or_sections, at)
    return tuple(slice.rule(input, at, a, b) for a, b in pairwise(at_cuts))


alias("unsafe_chunk", chunk)
alias("unsafe_split", split)
alias("unsafe_split_with_sizes", split_with_sizes)
