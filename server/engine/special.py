"""Where the special functions come from: SciPy on the host, CuPy's counterpart of it on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np


def special(xp: Any) -> Any:
    """The module of special functions that belongs to an array library."""
    if xp is np:
        import scipy.special

        return scipy.special
    import cupyx.scipy.special

    return cupyx.scipy.special
