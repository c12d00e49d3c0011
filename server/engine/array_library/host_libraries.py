"""Calls of BLAS and LAPACK on the host, for all matrices of a batch in one go: Intel MKL's, or those that SciPy brings.

SciPy has OpenBLAS, which is always there. MKL, which PyTorch has, is used where its wheel is installed, as by
``pip install telegrad-server[mkl]``: see docs/decisions/0032. Both have LAPACK's Fortran interface with integers of 32
bits, so that the same call serves both. The calls are made through ctypes, which releases the GIL.
"""

from __future__ import annotations

import ctypes
import glob
import sys
from collections import deque
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import count as numbers_from
from itertools import islice
from typing import Any

import numpy as np

from server.engine import compiled

from .addresses import data_address

Array = Any
PREFIXES = {"f": "s", "d": "d", "F": "c", "D": "z"}
"""The first letter of routines by type of elements."""
_watchers: list[Callable[[], None]] = []


@cache
def mkl() -> Any:
    """Intel MKL as a ctypes library, with its threads; None where it is not installed in this Python's environment."""
    threads, library = _path_of("libiomp5.so"), _path_of("libmkl_rt.so")
    if threads is None or library is None:
        return None
    ctypes.CDLL(threads, mode=ctypes.RTLD_GLOBAL).kmp_set_blocktime(0)  # gateway and client need the cores, too
    return ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)


def _path_of(name: str) -> str | None:
    """The path of a library, whose name may end with a version, where wheels and Conda put it."""
    return min(glob.glob(f"{sys.prefix}/lib/{name}*"), key=len, default=None)


def when_scipy_is_loaded(tell: Callable[[], None]) -> Callable[[], None]:
    """Have a function called after SciPy's BLAS has been loaded, before it is used; a decorator."""
    _watchers.append(tell)
    return tell


@cache
def linear_algebra() -> Any:
    """``scipy.linalg`` with its modules, imported when it is first asked for: many programs do without."""
    import scipy.linalg.cython_blas
    import scipy.linalg.cython_lapack

    for tell in _watchers:
        tell()
    return scipy.linalg


@cache
def sparse() -> Any:
    """``scipy.sparse`` with its ``linalg``, imported when it is first asked for."""
    linear_algebra()
    import scipy.sparse.linalg

    return scipy.sparse


@cache
def _scipy_routines() -> dict[str, Any]:
    """The pointers to functions that SciPy has for Cython, by their names."""
    scipy_linalg = linear_algebra()
    return {**scipy_linalg.cython_lapack.__pyx_capi__, **scipy_linalg.cython_blas.__pyx_capi__}


_api = ctypes.pythonapi
_api.PyCapsule_GetName.restype, _api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


@cache
def address_of(name: str) -> int:
    """The address of a routine, by its whole name."""
    library = mkl()
    if library is not None:
        return ctypes.cast(getattr(library, f"{name}_"), ctypes.c_void_p).value or 0
    capsule = _scipy_routines()[name]
    return int(_api.PyCapsule_GetPointer(capsule, _api.PyCapsule_GetName(capsule)))


@cache
def _function(name: str, count: int) -> Callable[..., None]:
    """A routine of so many arguments, all of which are addresses."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(address_of(name))


@lru_cache(maxsize=1024)
def constant(value: int | str) -> Any:
    """An integer or a letter in memory, which has to live as long as its address is used."""
    return ctypes.c_int(value) if isinstance(value, int) else ctypes.c_char(value.encode())


class Each(int):
    """The bytes from what a routine gets for one matrix to what it gets for the next; 0 is memory that all share."""


FEW_CALLS = 8
"""Up to so many calls are made one by one where compiled loops are not loaded, which takes time once."""


def call(name: str, dtype: Any, count: int, *arguments: Any) -> None:
    """Call a routine of BLAS or LAPACK, named without its first letter, once for each of ``count`` matrices.

    An integer or a letter is the same for all of them, an array has an element for each along its first dimension, and
    a tuple holds an array that all of them use, such as a workspace.
    """
    shapes, addresses = [], []
    for argument in arguments:
        array = argument[0] if argument.__class__ is tuple else argument
        if array.__class__ is np.ndarray:
            addresses.append(data_address(array))
            shapes.append(Each(array.strides[0] if array is argument else 0))
        else:
            shapes.append(argument)
    by_addresses(name, dtype, count, *shapes)(*addresses)


def by_addresses(name: str, dtype: Any, count: int, *arguments: Any) -> Callable[..., None]:
    """The same as a function of the addresses of the first matrix's arrays, for which ``arguments`` has an ``Each``.

    Others are integers and letters, which are the same in all calls.
    """
    places = tuple([place for place, argument in enumerate(arguments) if argument.__class__ is Each])
    kept = [None if argument.__class__ is Each else constant(argument) for argument in arguments]
    words = [0 if constant is None else ctypes.addressof(constant) for constant in kept]
    whole = PREFIXES[dtype.char] + name
    function = _function(whole, len(arguments))
    steps = [argument if argument.__class__ is Each else 0 for argument in arguments]

    def run_once(*addresses: int, alive: Any = kept) -> None:
        given = words.copy()
        for place, address in zip(places, addresses, strict=True):
            given[place] = address
        function(*given)

    def run(*addresses: int, alive: Any = kept) -> None:
        given = words.copy()
        loops = (
            compiled.loaded("factorizations.routines")
            if count <= FEW_CALLS
            else compiled.kernels("factorizations.routines")
        )
        for place, address in zip(places, addresses, strict=True):
            given[place] = address
        if loops is None or len(given) > loops.MOST:
            deque(islice(map(function, *map(numbers_from, given, steps)), count), 0)
        else:
            _repeat(loops, address_of(whole), given, steps, count)

    return run_once if count == 1 else run


def _repeat(loops: Any, function: int, words: list[int], steps: list[int], count: int) -> None:
    """Call a routine for several matrices in a compiled loop, which gets addresses and steps as a table."""
    size = len(words)
    table = (ctypes.c_int64 * (2 * size))(*words, *steps)
    start = ctypes.addressof(table)
    loops.repeat(function, size, start, start + 8 * size, count)


@lru_cache(maxsize=1024)
def workspace_size(name: str, dtype: Any, *arguments: Any) -> int:
    """What a routine answers when it is asked, with -1, for the best size of its workspace."""
    answer, unused = np.zeros(1, dtype), np.zeros(1, dtype)
    given = [(unused,) if argument == () else argument for argument in arguments]
    call(name, dtype, 1, *given, (answer,), -1, (np.zeros(1, np.int32),))
    return max(1, int(answer[0].real))


def workspace(name: str, dtype: Any, *arguments: Any) -> Array:
    """An uninitialized workspace for a routine whose last arguments are workspace, its size and info.

    ``arguments`` are those before; an empty tuple stands for an array, which is not looked at.
    """
    return np.empty(workspace_size(name, dtype, *arguments), dtype)
