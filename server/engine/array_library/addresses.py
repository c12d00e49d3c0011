"""Where NumPy's arrays have their elements, and its functions their inner loops, for what is called by addresses.

Both structures are part of NumPy's binary interface, and have not changed since its first release.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np

_DATA = object.__basicsize__
"""Where an array's structure has the pointer to its elements: it is the first field after the object's head.

NumPy's binary interface fixes this; ``ctypes`` and ``__array_interface__`` of an array make several objects to tell it.
"""


def data_address(array: Any) -> int:
    """The address of the first element of an array of NumPy's."""
    return ctypes.c_size_t.from_address(id(array) + _DATA).value


class _Structure(ctypes.Structure):
    """The beginning of ``PyUFuncObject``, behind the object's head."""

    _fields_ = (
        ("nin", ctypes.c_int), ("nout", ctypes.c_int), ("nargs", ctypes.c_int), ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)), ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int), ("reserved", ctypes.c_int), ("name", ctypes.c_char_p), ("types", ctypes.c_void_p),
    )  # fmt: skip


class NumpyLoop(NamedTuple):
    """A loop's address, and that of what it is given beside operands, sizes and steps."""

    function: int
    data: int


@cache
def loop_of(function: Any, types: str) -> NumpyLoop | None:
    """The loop of a universal function for operands and results of these types, such as ``ff->f``; None if unknown.

    What the structure has is compared with what the function tells about itself before anything is believed.
    """
    if not isinstance(function, np.ufunc) or types not in function.types or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    structure = _Structure.from_address(id(function) + object.__basicsize__)
    counts = structure.nin, structure.nout, structure.nargs, structure.ntypes
    if counts != (function.nin, function.nout, function.nargs, function.ntypes):
        return None
    if structure.name != function.__name__.encode():
        return None
    number = function.types.index(types)
    address = structure.functions[number]
    return None if not address else NumpyLoop(address, (structure.data[number] or 0) if structure.data else 0)
