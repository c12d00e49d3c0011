"""Loops that read and write elements at positions which data gives, for some units of the work each.

Positions are unsigned, so that negative ones are beyond any size. What is moved to or from a row of positions is moved
only if all of them are within bounds; where one is not, a loop raises its flag and ends. Tables of functions: by the
bytes of an element where elements are moved, as integers, and by the character of NumPy's type where they are added,
one after another in the order in which they are given. Tensors are (outer, indexed, inner), and a unit is up to
``WIDTH`` inner elements of one outer element; ``..._rows`` are for tensors without inner elements, as matrices, of
which a unit is a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..arithmetic import EXACT, compiled, inlined, is_same

Array = Any
_SIZES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
_NUMBERS = {"f": "float32", "d": "float64", "l": "int64"}
_MATRIX, _PLANES, _PLACES, _PLACE_PLANES = "T[:,::1]", "T[:,:,::1]", "uint64[:,::1]", "uint64[:,:,::1]"
_FLAG = "int64[::1]"
WIDTH = 256
u64 = np.uint64


def _for_each(kinds: Mapping[Any, str], *types: str) -> Callable[[Any], dict[Any, Any]]:
    """Compile a function for several types of elements, which are written T."""

    def decorate(function: Any) -> dict[Any, Any]:
        signatures = {key: [text.replace("T", kind) for text in types] for key, kind in kinds.items()}
        return {key: compiled(*signature, flags=EXACT)(function) for key, signature in signatures.items()}

    return decorate


@inlined
def _are_within(places: Array, size: int) -> Any:
    highest = u64(0)
    for j in range(places.size):
        highest = max(highest, places[j])
    return highest < u64(size)


@_for_each(_SIZES, _MATRIX, _PLACES, _MATRIX, "int64", "int64", _FLAG)
def gather_rows(x: Array, index: Array, out: Array, first: int, last: int, flag: Array) -> None:
    """out[o, j] = x[o, index[o, j]]"""
    for o in range(first, last):
        row, places, target = x[o], index[o], out[o]
        if not _are_within(places, row.size):
            flag[0] = 1
            return
        for j in range(places.size):
            target[j] = row[places[j]]


@_for_each(_SIZES, _PLANES, _PLACE_PLANES, _PLANES, "int64", "int64", _FLAG)
def gather(x: Array, index: Array, out: Array, first: int, last: int, flag: Array) -> None:
    """out[o, j, i] = x[o, index[o, j, i], i]"""
    blocks = (index.shape[2] + WIDTH - 1) // WIDTH
    for unit in range(first, last):
        o, begin = unit // blocks, unit % blocks * WIDTH
        end = min(begin + WIDTH, index.shape[2])
        for j in range(index.shape[1]):
            places, target = index[o, j, begin:end], out[o, j, begin:end]
            if not _are_within(places, x.shape[1]):
                flag[0] = 1
                return
            for i in range(places.size):
                target[i] = x[o, places[i], begin + i]


@_for_each(_SIZES, _MATRIX, _PLACES, _MATRIX, _MATRIX, "int64", "int64", _FLAG)
def scatter_rows(x: Array, index: Array, source: Array, out: Array, first: int, last: int, flag: Array) -> None:
    """out = x; out[o, index[o, j]] = source[o, j]"""
    is_in_place = is_same(x, out)
    for o in range(first, last):
        row, places, target = source[o], index[o], out[o]
        if not _are_within(places, target.size):
            flag[0] = 1
            return
        if not is_in_place:
            target[:] = x[o]
        for j in range(places.size):
            target[places[j]] = row[j]


@_for_each(_SIZES, _PLANES, _PLACE_PLANES, _PLANES, _PLANES, "int64", "int64", _FLAG)
def scatter(x: Array, index: Array, source: Array, out: Array, first: int, last: int, flag: Array) -> None:
    """out = x; out[o, index[o, j, i], i] = source[o, j, i]"""
    is_in_place = is_same(x, out)
    blocks = (index.shape[2] + WIDTH - 1) // WIDTH
    for unit in range(first, last):
        o, begin = unit // blocks, unit % blocks * WIDTH
        end = min(begin + WIDTH, index.shape[2])
        for r in range(0 if is_in_place else out.shape[1]):
            out[o, r, begin:end] = x[o, r, begin:end]
        for j in range(index.shape[1]):
            places, values = index[o, j, begin:end], source[o, j, begin:end]
            if not _are_within(places, out.shape[1]):
                flag[0] = 1
                return
            for i in range(places.size):
                out[o, places[i], begin + i] = values[i]


@_for_each(_NUMBERS, _MATRIX, _PLACES, _MATRIX, _MATRIX, "int64", "int64", _FLAG)
def add_rows(x: Array, index: Array, source: Array, out: Array, first: int, last: int, flag: Array) -> None:
    """out = x; out[o, index[o, j]] += source[o, j]"""
    is_in_place = is_same(x, out)
    for o in range(first, last):
        row, places, target = source[o], index[o], out[o]
        if not _are_within(places, target.size):
            flag[0] = 1
            return
        if not is_in_place:
            target[:] = x[o]
        for j in range(places.size):
            target[places[j]] += row[j]


@_for_each(_NUMBERS, _PLANES, _PLACE_PLANES, _PLANES, _PLANES, "int64", "int64", _FLAG)
def add(x: Array, index: Array, source: Array, out: Array, first: int, last: int, flag: Array) -> None:
    """out = x; out[o, index[o, j, i], i] += source[o, j, i]"""
    is_in_place = is_same(x, out)
    blocks = (index.shape[2] + WIDTH - 1) // WIDTH
    for unit in range(first, last):
        o, begin = unit // blocks, unit % blocks * WIDTH
        end = min(begin + WIDTH, index.shape[2])
        for r in range(0 if is_in_place else out.shape[1]):
            out[o, r, begin:end] = x[o, r, begin:end]
        for j in range(index.shape[1]):
            places, values = index[o, j, begin:end], source[o, j, begin:end]
            if not _are_within(places, out.shape[1]):
                flag[0] = 1
                return
            for i in range(places.size):
                out[o, places[i], begin + i] += values[i]


@_for_each(_NUMBERS, _MATRIX, "uint64[::1]", _MATRIX, "int64", "int64")
def add_to_rows(target: Array, index: Array, rows: Array, first: int, last: int) -> None:
    """target[index[j], c] += rows[j, c], for columns from the first to the last, at positions that were checked."""
    for j in range(index.size):
        added, row = rows[j, first:last], target[index[j], first:last]
        for c in range(row.size):
            row[c] += added[c]
