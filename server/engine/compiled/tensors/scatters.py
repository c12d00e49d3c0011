"""Loops that read and write elements at positions which data gives. Positions are checked before, and not negative.

Tables of functions: by the bytes of an element where elements are moved, as integers, and by the character of NumPy's
type where they are added, one after another in the order in which they are given. Tensors are (outer, indexed, inner);
``..._rows`` are for those without inner elements, as matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..arithmetic import EXACT, compiled

Array = Any
_SIZES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
_NUMBERS = {"f": "float32", "d": "float64", "l": "int64"}
_MATRIX, _PLANES, _PLACES, _PLACE_PLANES = "T[:,::1]", "T[:,:,::1]", "int64[:,::1]", "int64[:,:,::1]"


def _for_each(kinds: Mapping[Any, str], *types: str) -> Callable[[Any], dict[Any, Any]]:
    """Compile a function for several types of elements, which are written T."""

    def decorate(function: Any) -> dict[Any, Any]:
        signatures = {key: [text.replace("T", kind) for text in types] for key, kind in kinds.items()}
        return {key: compiled(*signature, flags=EXACT)(function) for key, signature in signatures.items()}

    return decorate


@_for_each(_SIZES, _MATRIX, _PLACES, _MATRIX)
def gather_rows(x: Array, index: Array, out: Array) -> None:
    """out[o, j] = x[o, index[o, j]]"""
    for o in range(index.shape[0]):
        row, places, target = x[o], index[o], out[o]
        for j in range(places.size):
            target[j] = row[places[j]]


@_for_each(_SIZES, _PLANES, _PLACE_PLANES, _PLANES)
def gather(x: Array, index: Array, out: Array) -> None:
    """out[o, j, i] = x[o, index[o, j, i], i]"""
    for o in range(index.shape[0]):
        for j in range(index.shape[1]):
            places, target = index[o, j], out[o, j]
            for i in range(places.size):
                target[i] = x[o, places[i], i]


@_for_each(_SIZES, _MATRIX, _PLACES, _MATRIX)
def scatter_rows(out: Array, index: Array, source: Array) -> None:
    """out[o, index[o, j]] = source[o, j]"""
    for o in range(index.shape[0]):
        row, places, target = source[o], index[o], out[o]
        for j in range(places.size):
            target[places[j]] = row[j]


@_for_each(_SIZES, _PLANES, _PLACE_PLANES, _PLANES)
def scatter(out: Array, index: Array, source: Array) -> None:
    """out[o, index[o, j, i], i] = source[o, j, i]"""
    for o in range(index.shape[0]):
        for j in range(index.shape[1]):
            places, values = index[o, j], source[o, j]
            for i in range(places.size):
                out[o, places[i], i] = values[i]


@_for_each(_NUMBERS, _MATRIX, _PLACES, _MATRIX)
def add_rows(out: Array, index: Array, source: Array) -> None:
    """out[o, index[o, j]] += source[o, j]"""
    for o in range(index.shape[0]):
        row, places, target = source[o], index[o], out[o]
        for j in range(places.size):
            target[places[j]] += row[j]


@_for_each(_NUMBERS, _PLANES, _PLACE_PLANES, _PLANES)
def add(out: Array, index: Array, source: Array) -> None:
    """out[o, index[o, j, i], i] += source[o, j, i]"""
    for o in range(index.shape[0]):
        for j in range(index.shape[1]):
            places, values = index[o, j], source[o, j]
            for i in range(places.size):
                out[o, places[i], i] += values[i]


@_for_each(_NUMBERS, _MATRIX, "int64[::1]", _MATRIX)
def add_to_rows(target: Array, index: Array, rows: Array) -> None:
    """target[index[j]] += rows[j]"""
    for j in range(index.size):
        added, row = rows[j], target[index[j]]
        for c in range(row.size):
            row[c] += added[c]
