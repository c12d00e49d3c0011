"""Where NumPy's arrays have their elements, for what is called by addresses."""

from __future__ import annotations

from ctypes import c_size_t
from typing import Any

_DATA = object.__basicsize__
"""Where an array's structure has the pointer to its elements: it is the first field after the object's head.

NumPy's binary interface fixes this; ``ctypes`` and ``__array_interface__`` of an array make several objects to tell it.
"""


def data_address(array: Any) -> int:
    """The address of the first element of an array of NumPy's."""
    return c_size_t.from_address(id(array) + _DATA).value
