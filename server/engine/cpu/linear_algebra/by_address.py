"""Launches that give LAPACK the addresses of operands and results, for all matrices of a batch at once.

The generic kernels compute where compiled loops of small matrices are faster, as for LU and QR factorizations of many,
where something fails, and where MKL is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import create_string_buffer
from functools import cache
from typing import Any

import numpy as np

from server.engine.array_library import host_small_matrices as small
from server.engine.array_library.addresses import data_address
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.array_library.host_libraries import Each, mkl
from server.engine.array_library.host_matrices import columns_of, copy_columns
from server.engine.operators import Request
from server.engine.value import Launch, Value
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.matrices import column_major

from .matrices import launch_of

Array = Any
MOST_SCRATCH = 1 << 22
"""Matrices of more bytes are factorized in memory of their own: what is kept here stays with the process."""


@cache
def _scratch(nbytes: int) -> Any:
    return create_string_buffer(nbytes)


def scratch(nbytes: int) -> Any:
    """Memory for what a factorization leaves behind, of a power of two of bytes; the next one uses it again."""
    return _scratch(1 << max(nbytes - 1, 1).bit_length())


def is_lapacks(meta: Meta) -> bool:
    """Whether there are matrices, and these are for SciPy's LAPACK and not for MKL."""
    return meta.numel > 0 and mkl() is None


def is_for_loops(meta: Meta) -> bool:
    """Whether compiled loops factorize a batch of small matrices, if that is what they are good at."""
    return small.takes(meta.shape, NUMPY_DTYPES[meta.dtype].char)


def count_of(meta: Meta) -> int:
    """How many matrices there are."""
    return math.prod(meta.shape[:-2])


def address_of(value: Value, meta: Meta) -> int:
    """The address of the first element, on the host."""
    return int(value.storage.block.pointer + meta.offset * meta.dtype.itemsize)


def each_of(meta: Meta, dimensions: int = 2) -> Each:
    """The step between what dense memory holds for two matrices: as many last dimensions, none for a number."""
    return Each(math.prod(meta.shape[meta.ndim - dimensions :]) * meta.dtype.itemsize)


def launch_by_address(
    generic: Callable[..., Any], names: tuple[str, ...], request: Request, columns: Sequence[Meta],
    write: Callable[[tuple[Value, ...], tuple[Value, ...]], bool],
) -> Launch | None:  # fmt: skip
    """A launch that calls ``write`` with values, and computes generically where that returns False.

    ``columns`` are the results that have to have contiguous columns, the others have to be contiguous: None where they
    are not. ``names`` are those of the keywords that the generic kernel takes last.
    """
    others = [meta for meta in request.outs if meta not in columns]
    if any([meta.strides != column_major(meta).strides for meta in columns]):
        return None
    if not all([meta.is_contiguous for meta in others]):
        return None
    fallback = launch_of(generic, names, request, lambda *arrays: False)

    def launch(args: Any, outs: Any) -> None:
        if not write(args, outs):
            fallback(args, outs)

    return launch


def _step_of_batch(meta: Meta) -> int | None:
    """The elements from a matrix to the next, where there is one such number."""
    step = expected = None
    for size, stride in zip(reversed(meta.shape[:-2]), reversed(meta.strides[:-2]), strict=True):
        if size == 1:
            continue
        if expected is None:
            step = expected = stride
        if stride != expected:
            return None
        expected = stride * size
    return step or 0


Source = Callable[[Value], tuple[int, Any]]
"""Tells the address of matrices, and what has to live as long as that is used."""


def columns_in(meta: Meta) -> tuple[Source, int, Each]:
    """Where matrices with contiguous columns are, the elements between two of these, and between two matrices.

    They are copied where they lie otherwise.
    """
    return _in_place(meta) or (_copied, max(meta.shape[-2], 1), each_of(meta))


def rows_or_columns_in(meta: Meta) -> tuple[Source, int, Each, bool]:
    """The same where matrices may be read as their transposes, which the last of the results says."""
    here = _in_place(meta)
    if here is None and _rows_are_contiguous(meta):
        turned = meta.like(
            (*meta.shape[:-2], meta.shape[-1], meta.shape[-2]),
            strides=(*meta.strides[:-2], meta.strides[-1], meta.strides[-2]),
        )
        there = _in_place(turned)
        if there is not None:
            return _place(meta), there[1], there[2], True
    return *(here or columns_in(meta)), False


def _rows_are_contiguous(meta: Meta) -> bool:
    return meta.strides[-1] == 1 or meta.shape[-1] == 1


def _in_place(meta: Meta) -> tuple[Source, int, Each] | None:
    rows, columns = meta.shape[-2:]
    step = _step_of_batch(meta)
    distance = meta.strides[-1] if columns > 1 else rows
    if step is None or (meta.strides[-2] != 1 and rows > 1) or distance < max(rows, 1):
        return None
    return _place(meta), distance, Each(step * meta.dtype.itemsize)


def _place(meta: Meta) -> Source:
    start = meta.offset * meta.dtype.itemsize
    return lambda value: (value.storage.block.pointer + start, None)


def _copied(value: Value) -> tuple[int, Any]:
    copy = columns_of(value.array)
    return data_address(copy), copy


def copy_into(target: Value, source: Value) -> None:
    """Copy matrices into those of a result, whose columns are contiguous."""
    copy_columns(target.array, source.array)


@cache
def below(rows: int, columns: int) -> Array:
    """Where elements are below the diagonal."""
    return np.tri(rows, columns, -1, dtype=bool)
