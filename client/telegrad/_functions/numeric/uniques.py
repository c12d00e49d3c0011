"""Distinct elements, or parts along a dimension: ``unique`` and ``unique_consecutive``."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ShapeError
from telegrad_protocol.layout import wrap_dim


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Return the distinct elements, or the distinct parts along ``dim``, in ascending order.

    With ``return_inverse`` also, for each element of the input or each part, its index among them; with
    ``return_counts`` also how often each occurs. Waits once, for the number of distinct ones.
    """
    return _distinct("unique", input, return_inverse, return_counts, dim, False)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the first of every run of equal elements, or of equal parts along ``dim``; see ``unique``."""
    return _distinct("unique_consecutive", input, return_inverse, return_counts, dim, True)


def _distinct(name: str, input: Tensor, inverse: bool, counts: bool, dim: int | None, consecutive: bool) -> Any:
    if dim is None:
        rows, at = input.reshape(-1, 1), 0
    else:
        at = wrap_dim(name, dim, input.ndim)
        if not input.numel() and input.ndim and input.shape[at]:
            raise ShapeError(f"{name}: the parts of {input._meta} along dimension {dim} have no elements")
        rows = input.movedim(at, 0).flatten(1) if input.ndim > 1 else input.reshape(-1, 1)
    first, groups, sizes = function("_unique_rows")(rows, consecutive)
    source = input.reshape(-1) if dim is None or not input.ndim else input.movedim(at, 0)
    values = source.index_select(0, first)
    results = [values if dim is None else values.movedim(0, at)]
    if inverse:
        results.append(groups.reshape(input.shape) if dim is None else groups)
    if counts:
        results.append(sizes)
    return results[0] if len(results) == 1 else tuple(results)


METHODS: dict[str, Any] = {"unique": unique, "unique_consecutive": unique_consecutive}
