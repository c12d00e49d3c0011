"""The class of jagged tensors, for ``isinstance``, and its makers under the names that programs know."""

from __future__ import annotations

from typing import Any

from telegrad._nested.building import of_list, view_of
from telegrad._nested.padding import packed
from telegrad._nested.ragged import Ragged
from telegrad._nested.tensor import NestedTensor as NestedTensor
from telegrad._tensor.tensor import Tensor


def jagged_from_list(
    tensors: list[Tensor], offsets: Tensor | None, dtype: Any = None, device: Any = None
) -> tuple[NestedTensor, Tensor]:
    """Return a jagged tensor of copies of tensors, divided by ``offsets`` where they are given, and its offsets."""
    made = of_list(tensors, dtype, device)
    if offsets is not None:
        made = NestedTensor(made._values, Ragged(offsets), made._dim)
    return made, made.offsets()


def nested_view_from_values_offsets(
    values: Tensor, offsets: Tensor, ragged_idx: int = 1, min_seqlen: int | None = None, max_seqlen: int | None = None
) -> NestedTensor:
    """Return a jagged tensor that is a view of packed values."""
    return view_of(values, offsets, None, ragged_idx, min_seqlen, max_seqlen)


def nested_view_from_values_offsets_lengths(
    values: Tensor, offsets: Tensor, lengths: Tensor | None, ragged_idx: int = 1, min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:  # fmt: skip
    """Return a jagged tensor, which may have gaps, that is a view of packed values."""
    return view_of(values, offsets, lengths, ragged_idx, min_seqlen, max_seqlen)


def nested_from_padded(
    padded: Tensor, offsets: Tensor, ragged_idx: int = 1, min_seqlen: int | None = None,
    max_seqlen: int | None = None, sum_S: int | None = None,
) -> NestedTensor:  # fmt: skip
    """Return the rows of a padded tensor that are no padding; reads how many there are unless ``sum_S`` says it."""
    ragged = Ragged(offsets, None, min_seqlen, max_seqlen)
    return packed(padded, ragged, sum(ragged.listed()) if sum_S is None else sum_S, ragged_idx)
