"""Samples put together into batches: ``default_collate`` and ``default_convert``.

Numbers and NumPy arrays are put together on this machine, so that each field of a batch is one upload.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from telegrad._functions.creation import as_tensor
from telegrad._ops.functions import function
from telegrad._tensor.host_arrays import TO_NUMPY, UNKNOWN_TO_NUMPY, from_python
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import get_default_dtype
from telegrad_protocol.errors import ArgumentTypeError, ShapeError


class HostField:
    """One field of a batch that is to become a tensor, as a process that has no session collates it."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array


def default_collate(batch: Any) -> Any:
    """Put a list of samples together: tensors, arrays and numbers with a new first dimension, containers by element.

    Strings and bytes stay lists. Raises ArgumentTypeError for samples of other types.
    """
    return _collate(batch, _uploaded)


def collate_on_host(batch: Any) -> Any:
    """Do as ``default_collate`` does with arrays in place of new tensors, marked for ``upload_fields``."""
    return _collate(batch, HostField)


def upload_fields(batch: Any) -> Any:
    """Put tensors in the places of what ``collate_on_host`` has marked."""
    if isinstance(batch, HostField):
        return _uploaded(batch.array)
    return rebuilt(batch, upload_fields) if isinstance(batch, (dict, list, tuple)) else batch


def default_convert(data: Any) -> Any:
    """Put tensors in the places of NumPy arrays and their numbers, in containers too; leave all else as it is.

    A tuple becomes a list, as in PyTorch, unless it is one with names.
    """
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in "SUO" else as_tensor(np.asarray(data))
    if isinstance(data, tuple) and not hasattr(data, "_fields"):
        return [default_convert(value) for value in data]
    is_container = isinstance(data, Mapping | Sequence) and not isinstance(data, str | bytes)
    return rebuilt(data, default_convert) if is_container else data


def _uploaded(array: np.ndarray[Any, Any]) -> Tensor:
    return as_tensor(array)


np_str_obj_array_pattern = re.compile(r"[SaUO]")
"""The kinds of NumPy's arrays that have no numbers."""


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Return the tensors of a batch as one."""
    stacked: Tensor = function("stack")(list(batch))
    return stacked


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Return the arrays, or NumPy's numbers, of a batch as one tensor."""
    collated: Tensor = _collate_arrays(batch, _uploaded)
    return collated


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Return the numbers of a batch as one tensor."""
    collated: Tensor = _collate_numbers(batch, _uploaded)
    return collated


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Return the texts of a batch as they are."""
    return batch


collate_numpy_scalar_fn, collate_float_fn = collate_numpy_array_fn, collate_int_fn
default_collate_fn_map: dict[Any, Any] = {
    Tensor: collate_tensor_fn, np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn,
}  # fmt: skip
"""Functions that put samples together, ``function(batch, collate_fn_map=...)``, by their type, a program's own too."""
_USUAL: Final = frozenset(default_collate_fn_map.values())


def collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Put a list of samples together as ``default_collate`` does, but those of the given types by their functions."""
    return _collate(batch, _uploaded, collate_fn_map or {})


def _collate(batch: Any, made: Callable[[np.ndarray[Any, Any]], Any], functions: Any = None) -> Any:
    first = batch[0]
    functions = default_collate_fn_map if functions is None else functions
    for kind, function_of_kind in functions.items():
        if function_of_kind not in _USUAL and isinstance(first, kind):
            return function_of_kind(batch, collate_fn_map=functions)
    if isinstance(first, Tensor):
        return function("stack")(list(batch))
    if isinstance(first, str | bytes):  # NumPy's strings are arrays, too
        return batch
    if isinstance(first, np.ndarray | np.generic):
        return _collate_arrays(batch, made)
    if isinstance(first, bool | int | float):
        return _collate_numbers(batch, made)
    if isinstance(first, Mapping):
        return _like(first, {key: _collate([sample[key] for sample in batch], made, functions) for key in first})
    if isinstance(first, Sequence):
        return _collate_sequences(first, batch, made, functions)
    raise ArgumentTypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
        f"{type(first).__name__}; give the DataLoader a collate_fn"
    )


def _collate_arrays(batch: Any, made: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
    if batch[0].dtype.kind in "SUO":
        raise ArgumentTypeError(f"default_collate: arrays of {batch[0].dtype} cannot become tensors")
    shapes = {np.shape(sample) for sample in batch}
    if len(shapes) > 1:
        raise ShapeError(f"default_collate: samples of different shapes cannot be stacked: {sorted(shapes)}")
    return made(np.stack([np.asarray(sample) for sample in batch]))


def _collate_numbers(batch: Any, made: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
    if isinstance(batch[0], float):
        return made(np.array(batch, np.float64))
    array, default = from_python(list(batch))[0], get_default_dtype()
    is_float = array.dtype.kind == "f"  # one float among them makes all of them floats
    return made(array.astype(TO_NUMPY[UNKNOWN_TO_NUMPY.get(default, default)]) if is_float else array)


def _collate_sequences(
    first: Sequence[Any], batch: Any, made: Callable[[np.ndarray[Any, Any]], Any], functions: Any
) -> Any:
    if any(len(sample) != len(first) for sample in batch):
        raise ShapeError(
            "default_collate: each element in list of batch should be of equal size, but lengths are "
            f"{sorted({len(sample) for sample in batch})}"
        )
    fields = [_collate(samples, made, functions) for samples in zip(*batch)]
    return fields if isinstance(first, tuple) and not hasattr(first, "_fields") else _like(first, fields)


def rebuilt(data: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a mapping or sequence of the same type with each element converted."""
    if isinstance(data, Mapping):
        return _like(data, {key: convert(value) for key, value in data.items()})
    return _like(data, [convert(value) for value in data])


def _like(example: Any, content: Any) -> Any:
    """Return ``content`` in a container of the example's type, where that can be made of it."""
    kind = type(example)
    if kind is type(content):
        return content
    if hasattr(example, "_fields"):
        return kind(*content)
    try:
        if isinstance(example, dict):
            filled = copy.copy(example)
            filled.update(content)
            return filled
        return kind(content)
    except TypeError:  # such as range, which is not made of its elements
        return content
