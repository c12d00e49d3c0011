"""Numbers in JSON, which has neither complex numbers nor NaN and infinities of its own.

A complex number is ``{"complex": [real, imaginary]}``; the floats that JSON lacks are the strings in ``SPECIAL``. Knows
nothing of requests, shapes or types.
"""

from __future__ import annotations

import math
from typing import Any, Final

from .errors import ArgumentError

SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def read_number(plain: Any) -> Any:
    """The number that a JSON value stands for; a value that stands for none is returned as it is."""
    match plain:
        case str() if plain in SPECIAL:
            return SPECIAL[plain]
        case {"complex": [real, imaginary]} if len(plain) == 1:
            return _complex(read_number(real), read_number(imaginary))
    return plain


def _complex(real: Any, imaginary: Any) -> complex:
    try:
        return complex(float(real), float(imaginary))
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError("tensor: a complex number takes two real ones") from error
