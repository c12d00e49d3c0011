"""Launches that give LAPACK the addresses of operands and results, for all matrices of a batch at once.

The generic kernels compute where compiled loops of small matrices are faster, as for LU and QR factorizations of many,
and where something fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import addressof, create_string_buffer
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from server.engine.array_library import host_small_matrices as small
from server.engine.array_library.addresses import data_address
from server.engine.array_library.dtypes import NUMPY_DTYPES
from server.engine.operators import Request
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra.matrices import column_major

from .matrices import launch_of
from .sequences import FIXED, Place, Step, launch_in_sequence

MOST_SCRATCH = 1 << 22
"""Matrices of more bytes are factorized in memory of their own: what is kept here stays with the process."""


@cache
def _scratch(nbytes: int) -> Any:
    return create_string_buffer(nbytes)


def scratch(nbytes: int) -> Any:
    """Memory for what a factorization leaves behind, of a power of two of bytes; the next one uses it again."""
    return _scratch(1 << max(nbytes - 1, 1).bit_length())


def is_for_loops(meta: Meta) -> bool:
    """Whether compiled loops factorize a batch of small matrices, if that is what they are good at."""
    return small.takes(meta.shape, NUMPY_DTYPES[meta.dtype].char)


def count_of(meta: Meta) -> int:
    """How many matrices there are."""
    return math.prod(meta.shape[:-2])


def scratch_places(*sizes: int) -> list[Place] | None:
    """Places of so many bytes in scratch memory, one behind the other; None where they are too many."""
    ends = list(accumulate([-(-size // 16) * 16 for size in sizes]))
    if ends[-1] > MOST_SCRATCH:
        return None
    at = addressof(scratch(ends[-1]))
    return [Place(FIXED, at + start) for start in (0, *ends[:-1])]


@cache
def _one(dtype: Any) -> Any:
    return np.ones(1, dtype)


def place_of_one(dtype: Any) -> Place:
    """Where a number 1 of a type is."""
    return Place(FIXED, data_address(_one(dtype)))


def launch_of_steps(
    generic: Callable[..., Any], names: tuple[str, ...], request: Request, columns: Sequence[Meta],
    steps: Sequence[Step],
) -> Launch | None:  # fmt: skip
    """A launch that executes steps, and computes generically where one of them ends the sequence.

    ``columns`` are the results that have to have contiguous columns, the others have to be contiguous: None where they
    are not. ``names`` are those of the keywords that the generic kernel takes last.
    """
    if not _are_in_order(request, columns):
        return None
    operands = [arg for arg in request.args if isinstance(arg, Meta)]
    return launch_in_sequence(steps, operands, launch_of(generic, names, request, lambda *arrays: False))


def _are_in_order(request: Request, columns: Sequence[Meta]) -> bool:
    """Whether results have contiguous columns, or rows if they are not among ``columns``."""
    others = [meta for meta in request.outs if meta not in columns]
    by_columns = all([meta.strides == column_major(meta).strides for meta in columns])
    return by_columns and all([meta.is_contiguous for meta in others])
