"""Names of C++ functions as people write them."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any, Final

_LONGEST: Final = 4096


@lru_cache(1 << 12)
def plain_name(name: str) -> str:
    """Return the name of a function as its declaration has it; ``name`` itself where it is not mangled."""
    library = _library()
    if library is None or not name.startswith("_Z") or len(name) > _LONGEST:
        return name
    status = ctypes.c_int()
    found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    text = ctypes.string_at(found).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return library
