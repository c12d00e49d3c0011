"""``embedding_bag``: sums, means and maxima of rows of a table, without the rows in between for the user."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from telegrad._ops.duals import DualTensor
from telegrad._ops.functions import function
from telegrad._ops.operands.asserted_errors import AssertedArgumentError
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from .half_precision import computed_in_float32


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Return the rows of ``weight`` at ``input``; the row ``padding_idx`` gets no gradient.

    With ``sparse`` the gradient of a leaf is a sparse tensor, which SGD, Adagrad and SparseAdam take.
    """
    rows = weight.shape[0] if weight.ndim else 0
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise AssertedArgumentError(
            f"embedding: Padding_idx must be within num_embeddings, got {padding_idx} for {rows}"
        )
    if weight.__class__ is DualTensor and not weight.requires_grad:
        padding_idx = None  # the row has a tangent, though it gets no gradient
    if not sparse:
        return function("embedding")(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)  # type: ignore[no-any-return]
    if max_norm is not None:
        with no_grad():
            function("embedding_renorm_")(weight.detach(), input, max_norm, norm_type)
    looked_up: Tensor = import_module("telegrad._sparse.stand_ins").embedding(
        input, weight, padding_idx, scale_grad_by_freq
    )
    return looked_up


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Combine the rows of ``weight`` that every bag of ``input`` names: by ``sum``, ``mean`` or ``max``.

    Bags are the rows of a matrix, or parts of a vector that begin at ``offsets``; an empty bag gives zeros. Indices of
    ``padding_idx`` do not count.
    """
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"mode has to be one of sum, mean or max, got {mode}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}'). Please open a feature request on GitHub."
        )
    if sparse and mode == "max":
        raise ArgumentError("embedding_bag: max mode does not support sparse weights; leave sparse=False")
    if scale_grad_by_freq and mode == "max":
        raise ArgumentError("embedding_bag: max mode does not support scaling the gradient by the frequency")
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ArgumentError(
            f"embedding_bag: If per_sample_weights ({tuple(per_sample_weights.shape)}) is not None, then it must have "
            f"the same shape as the input ({tuple(input.shape)})"
        )
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ArgumentError(
            f"embedding_bag: padding_idx must be within the number of embeddings, {-rows} through {rows - 1}, but got "
            f"{padding_idx}"
        )
    flat, bags, count = _bags(input, offsets, include_last_offset)
    if max_norm is not None:
        with no_grad():
            function("embedding_renorm_")(weight.detach(), flat, max_norm, norm_type)
    return _combined(weight, flat, bags, count, mode, scale_grad_by_freq, per_sample_weights, padding_idx, sparse)


@computed_in_float32
def _combined(
    weight: Tensor, flat: Tensor, bags: Tensor, count: int, mode: str, scale_grad_by_freq: bool,
    per_sample_weights: Tensor | None, padding_idx: int | None, sparse: bool,
) -> Tensor:  # fmt: skip
    """Combine the rows that ``flat`` names, each in the bag of its number in ``bags``."""
    rows = embedding(flat, weight, None, None, 2.0, scale_grad_by_freq, sparse)
    counts = rows.new_ones(flat.shape)
    if padding_idx is not None:
        counts = counts * (flat != padding_idx % weight.shape[0]).to(rows.dtype)
    if mode == "max":
        return _largest(rows, bags, count, counts if padding_idx is not None else None)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if padding_idx is not None:
        rows = rows * counts.unsqueeze(1)
    total = rows.new_zeros((count, rows.shape[1])).index_add(0, bags, rows)
    if mode == "sum":
        return total
    sizes = counts.new_zeros(count).index_add(0, bags, counts).clamp(min=1)
    return total / sizes.unsqueeze(1)


def _bags(input: Tensor, offsets: Tensor | None, includes_last: bool) -> tuple[Tensor, Tensor, int]:
    """Return all indices as a vector, the number of each one's bag, and how many bags there are."""
    if input.ndim == 2:
        if offsets is not None:
            raise ArgumentError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                f"sequences. However, found offsets of type {type(offsets).__name__}"
            )
        count, length = input.shape
        numbers = function("arange")(count, device=input.device).unsqueeze(1).expand(count, length)
        return input.reshape(-1), numbers.reshape(-1), count
    if input.ndim != 1:
        raise ArgumentError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is None:
        raise ArgumentError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ArgumentError("offsets has to be a 1D Tensor")
    starts = (offsets[:-1] if includes_last else offsets).long()
    length = input.shape[0]
    marks = starts.new_zeros(length + 1).index_add(0, starts, function("ones_like")(starts))
    return input, marks.cumsum(0)[:length] - 1, starts.shape[0]


def _largest(rows: Tensor, bags: Tensor, count: int, kept: Tensor | None) -> Tensor:
    """Return the largest element of each column of every bag, the first one if several are equal; zeros for none."""
    values: Any = rows if kept is None else rows.masked_fill((kept == 0).unsqueeze(1), float("-inf"))
    index = bags.unsqueeze(1).expand(rows.shape)
    start = rows.new_full((count, rows.shape[1]), float("-inf"))
    largest = start.scatter_reduce(0, index, values, "amax", include_self=True)
    return function("where")(largest == float("-inf"), 0.0, largest)  # type: ignore[no-any-return]
