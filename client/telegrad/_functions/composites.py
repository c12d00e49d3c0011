"""Functions of PyTorch that are short programs of operations: grids, blocks, combinations, unique elements."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import as_dtype, int32, int64
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from telegrad_protocol.layout import broadcast_shapes as broadcast_sizes
from telegrad_protocol.ops.contract import describe

from .creation import tensor
from .into import into


def _listed(tensors: Sequence[Any]) -> list[Tensor]:
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


def broadcast_shapes(*shapes: Any) -> Size:
    """Return the shape that tensors of these shapes broadcast to."""
    return Size(broadcast_sizes("broadcast_shapes", *((s,) if isinstance(s, int) else tuple(s) for s in shapes)))


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Return views of the tensors that have the shape which all broadcast to."""
    listed = _listed(tensors)
    if any([tensor.is_nested for tensor in listed]):
        return import_module("telegrad._nested.shapes").broadcast_tensors(listed)  # type: ignore[no-any-return]
    shape = broadcast_sizes("broadcast_tensors", *(t._meta.shape for t in listed))
    return tuple(t.expand(shape) for t in listed)


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Return the coordinates of a grid, one tensor per axis; ``indexing="xy"`` swaps the first two axes."""
    if indexing is None:
        warnings.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.",
            UserWarning,
            stacklevel=2,
        )
        indexing = "ij"
    given = _listed(tensors)
    if not given:
        raise ShapeError("meshgrid: meshgrid expects a non-empty TensorList")
    if any([t.ndim > 1 or t.dtype is not given[0].dtype for t in given]):
        shown = ", ".join([describe(t) for t in given])
        raise ShapeError(f"meshgrid: expected tensors of one type with at most one dimension, got {shown}")
    listed = [t.reshape(-1) for t in given]
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"meshgrid: indexing must be 'ij' or 'xy', not {indexing!r}")
    sizes = [len(t) for t in listed]
    grids = []
    for at, line in enumerate(listed):
        grid = line.reshape([-1 if at == other else 1 for other in range(len(listed))]).expand(sizes)
        grids.append(grid.transpose(0, 1) if indexing == "xy" and len(listed) > 1 else grid)
    return tuple(grids)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Return all tuples of one element of every tensor, one per row."""
    listed = _listed(tensors)
    if len(listed) == 1:
        return listed[0]
    return function("stack")([grid.reshape(-1) for grid in meshgrid(listed, indexing="ij")], 1)  # type: ignore[no-any-return]


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all combinations of ``r`` elements of a 1-d tensor, one per row."""
    if input.ndim != 1:
        raise ShapeError(f"combinations: expected a tensor of one dimension, not {input._meta}")
    if r < 0:
        raise ArgumentError(f"combinations: expect a non-negative number, but got {r}")
    if not r:
        return input.new_empty(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(len(input)), r))
    positions = tensor(chosen, dtype=int64, device=input.device).reshape(len(chosen) * r)
    return input.index_select(0, positions).reshape(len(chosen), r)


def block_diag(*tensors: Any) -> Tensor:
    """Return one matrix with the given matrices along its diagonal."""
    given = _listed(tensors)
    if not given:
        return function("empty")(1, 0)  # type: ignore[no-any-return]
    if any([t.ndim > 2 for t in given]):
        shown = ", ".join([describe(t) for t in given])
        raise ShapeError(f"block_diag: expected at most two dimensions, got {shown}")
    blocks = [t.reshape(1, -1) if t.ndim < 2 else t for t in given]
    width = sum(block.shape[1] for block in blocks)
    rows, left = [], 0
    for block in blocks:
        right = left + block.shape[1]
        rows.append(function("constant_pad_nd")(block, (left, width - right), 0))
        left = right
    return function("cat")(rows, 0)  # type: ignore[no-any-return]


def atleast_1d(*tensors: Any) -> Any:
    """Return the tensors with at least one dimension."""
    return _apply_to_all(tensors, lambda t: t.reshape(1) if t.ndim == 0 else t)


def atleast_2d(*tensors: Any) -> Any:
    """Return the tensors with at least two dimensions."""
    return _apply_to_all(tensors, lambda t: t.reshape(1, 1) if t.ndim == 0 else t.unsqueeze(0) if t.ndim == 1 else t)


def atleast_3d(*tensors: Any) -> Any:
    """Return the tensors with at least three dimensions."""

    def raise_to_three(t: Tensor) -> Any:
        if t.ndim == 0:
            return t.reshape(1, 1, 1)
        return t.unsqueeze(0).unsqueeze(-1) if t.ndim == 1 else t.unsqueeze(-1) if t.ndim == 2 else t

    return _apply_to_all(tensors, raise_to_three)


def _apply_to_all(tensors: Sequence[Any], change: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return change(tensors[0])
    return tuple(map(change, _listed(tensors)))


def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Return the tensors side by side; a 1-d tensor is a column."""
    columns = [t.reshape(-1, 1) if t.ndim < 2 else t for t in tensors]
    return into("column_stack", function("cat")(columns, 1), out)  # type: ignore[no-any-return]


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = int64, device: Any = None, layout: Any = None
) -> Tensor:
    """Return the positions of the lower triangle of a matrix: a row of row numbers and one of column numbers."""
    _check_sides("tril_indices", row, col, dtype)
    return tensor(np.stack(np.tril_indices(row, offset, col)), dtype=dtype, device=device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = int64, device: Any = None, layout: Any = None
) -> Tensor:
    """Return the positions of the upper triangle of a matrix: a row of row numbers and one of column numbers."""
    _check_sides("triu_indices", row, col, dtype)
    return tensor(np.stack(np.triu_indices(row, offset, col)), dtype=dtype, device=device)


def _check_sides(name: str, row: int, col: int, dtype: Any) -> None:
    if dtype is not None and as_dtype(dtype) not in (int32, int64):
        raise DTypeError(f"{name}: not implemented for {dtype}; the type of indices is int32 or int64")
    for label, side in (("row", row), ("col", col)):
        if side < 0:
            raise ArgumentError(f"{name}: {label} must be non-negative, got {side}")


def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False, out: Tensor | None = None
) -> Tensor:
    """Tell for every element whether it is among ``test_elements``; with ``invert``, whether it is not."""
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise ArgumentTypeError(f"isin: one of the arguments must be a tensor, got {elements!r} and {test_elements!r}")
    elements = elements if isinstance(elements, Tensor) else tensor(elements, device=test_elements.device)
    tests = test_elements if isinstance(test_elements, Tensor) else tensor(test_elements, device=elements.device)
    matches = (elements.unsqueeze(-1) == tests.reshape(-1)).any(-1)
    return into("isin", function("logical_not")(matches) if invert else matches, out)  # type: ignore[no-any-return]
