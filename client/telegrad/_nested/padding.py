"""Jagged tensors as padded ones and back. All is computed on the server, where nothing has to be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from .functions import implements, run
from .ragged import Ragged
from .tensor import NestedTensor


def padded(input: NestedTensor, value: Any, length: int) -> Tensor:
    """Return sequences of ``length`` rows, filled up with ``value``: (n, ...) with the ragged size replaced.

    Rows that do not fit in are left out.
    """
    ragged = input._ragged
    rows = input._values.transpose(0, input._dim - 1)
    filled = rows.new_full((ragged.count * length + 1, *rows.shape[1:]), value)
    places = ragged.places(int(rows.shape[0]), length)
    flat = filled.index_copy(0, places, rows)[: ragged.count * length]
    made: Tensor = flat.reshape(ragged.count, length, *rows.shape[1:])
    return made.transpose(1, input._dim)


def packed(padded: Tensor, ragged: Ragged, total: int, dim: int = 1) -> NestedTensor:
    """Return the rows of padded sequences, without the padding."""
    swapped = padded.transpose(1, dim)
    count, length = swapped.shape[:2]
    flat = swapped.reshape(count * length, *swapped.shape[2:])
    places = ragged.places(total, int(length)).clamp(max=max(count * length - 1, 0))
    return NestedTensor(flat.index_select(0, places).transpose(0, dim - 1), ragged, dim)


def gathered(input: NestedTensor, length: int) -> Tensor:
    """Return sequences of ``length`` rows of a tensor that may have gaps; what the padding holds is unspecified."""
    ragged = input._ragged
    rows = input._values.transpose(0, input._dim - 1)
    total = int(rows.shape[0])
    if not total:
        made: Tensor = rows.new_zeros((ragged.count, length, *rows.shape[1:]))
    else:
        made = rows.index_select(0, ragged.sources(total, length)).reshape(ragged.count, length, *rows.shape[1:])
    return made.transpose(1, input._dim)


def total_of(input: NestedTensor) -> int:
    """Return how many rows the values have along the ragged dimension."""
    return int(input._values.shape[input._dim - 1])


def padded_length(input: NestedTensor) -> int:
    """Return the length to which sequences are padded: the longest, or where nobody knows it, as many as all have."""
    longest = input._ragged.longest
    return total_of(input) if longest is None else longest


def require_no_gaps(name: str, input: NestedTensor) -> None:
    """Raise ArgumentError for a tensor whose elements do not lie one behind the other."""
    if input._ragged.lengths is not None:
        raise ArgumentError(f"{name}(): not supported for nested tensors with holes")


@implements("to_padded_tensor")
def to_padded_tensor(input: NestedTensor, padding: Any, output_size: Sequence[int] | None = None) -> Tensor:
    """Return an ordinary tensor in which shorter sequences are filled up with ``padding``."""
    require_no_gaps("to_padded_tensor", input)
    if output_size is None:
        return padded(input, padding, padded_length(input))
    sizes = [size for d, size in enumerate(output_size) if d != input._dim]
    own = [size for d, size in enumerate(input.shape) if d != input._dim]
    if sizes != own:
        raise ArgumentError(f"to_padded_tensor: output_size {tuple(output_size)} does not fit the shape {input.shape}")
    return padded(input, padding, int(output_size[input._dim]))


def in_padded(input: NestedTensor, name: str, value: Any, compute: Any) -> NestedTensor:
    """Apply a function of padded sequences that keeps their shape."""
    require_no_gaps(name, input)
    sequences = compute(padded(input, value, input._ragged.longest_length()))
    return packed(sequences, input._ragged, total_of(input), input._dim)


def spread(dense: Tensor, input: NestedTensor) -> Tensor:
    """Return what broadcasts along the ragged dimension, for each row of the values: (n, 1, ...) -> like the values."""
    ragged = input._ragged
    rows = dense.transpose(1, input._dim)
    total = total_of(input)
    if rows.shape[1] == 1:
        places = ragged.places(total, max(total, 1)).clamp(max=max(ragged.count * total - 1, 0))
        chosen = run("div", places, max(total, 1), rounding_mode="floor")
        return rows.squeeze(1).index_select(0, chosen).transpose(0, input._dim - 1)
    length = int(rows.shape[1])
    flat = rows.reshape(ragged.count * length, *rows.shape[2:])
    places = ragged.places(total, length).clamp(max=max(ragged.count * length - 1, 0))
    return flat.index_select(0, places).transpose(0, input._dim - 1)
