"""NumPy's arrays as arguments and results of an extension's functions: they travel as tensors of the CPU.

C++ may write into an array that it was given as it is, so that its elements come back after the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from telegrad._functions.creation import from_numpy
from telegrad._tensor.tensor import Tensor

from ._arguments import ARRAY, parts_of


def names_arrays(types: list[str]) -> bool:
    """Whether one of the types that C++ names is an array, or has arrays in it."""
    return any(ARRAY in kind for kind in types)


def without_arrays(kind: str) -> str:
    """Return a type with tensors in the places of arrays."""
    return re.sub(rf"{ARRAY}\[\w+\]", "torch.Tensor", kind)


def as_tensors(args: tuple[Any, ...], types: list[str]) -> tuple[tuple[Any, ...], Callable[[], None]]:
    """Return arguments with tensors for arrays, and what copies the elements back that C++ may have written."""
    written: list[tuple[np.ndarray[Any, Any], Tensor]] = []
    made = tuple([_as_tensor(value, kind, written) for value, kind in zip(args, types)])

    def copy_back() -> None:
        for array, tensor in written:
            np.copyto(array, tensor.numpy())

    return made, copy_back


def _as_tensor(value: Any, kind: str, written: list[tuple[np.ndarray[Any, Any], Tensor]]) -> Any:
    if ARRAY not in kind or value is None:
        return value
    name, _, inner = kind.partition("[")
    if name == "Optional":
        return _as_tensor(value, inner[:-1], written)
    if name != ARRAY:
        parts = parts_of(inner[:-1])
        items = parts if name == "Tuple" else [parts[-1]] * len(value)
        if isinstance(value, dict):
            return {key: _as_tensor(item, parts[-1], written) for key, item in value.items()}
        return type(value)([_as_tensor(item, part, written) for item, part in zip(value, items)])
    array = np.asarray(value)
    wanted = np.dtype(inner[:-1])
    made = from_numpy(np.array(array, dtype=wanted, order="C", copy=True))
    if isinstance(value, np.ndarray) and array.dtype == wanted and array.flags.c_contiguous and array.flags.writeable:
        written.append((value, made))
    return made


def as_arrays(result: Any, kind: str) -> Any:
    """Return what a function has returned with arrays for tensors where C++ says so."""
    if ARRAY not in kind or result is None:
        return result
    name, _, inner = kind.partition("[")
    if name == ARRAY:
        return result.numpy() if isinstance(result, Tensor) else result
    parts = parts_of(inner[:-1])
    if isinstance(result, dict):
        return {key: as_arrays(item, parts[-1]) for key, item in result.items()}
    if isinstance(result, (list, tuple)):
        items = parts if name == "Tuple" else [parts[0]] * len(result)
        return type(result)([as_arrays(item, part) for item, part in zip(result, items)])
    return as_arrays(result, parts[0])
