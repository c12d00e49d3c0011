"""Parameters of a kernel's launch, read as the kernel reads them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any


def parameters_at(address: int, formats: Sequence[str]) -> list[Any]:
    """Return the parameters, given where their addresses lie, and the format of each for ``struct``."""
    addresses = (ctypes.c_void_p * len(formats)).from_address(address) if formats else ()
    sizes = [struct.calcsize(f"={code}") for code in formats]
    raw = [ctypes.string_at(place, size) for place, size in zip(addresses, sizes, strict=True)]
    return [struct.unpack(f"={code}", item)[0] for code, item in zip(formats, raw, strict=True)]
