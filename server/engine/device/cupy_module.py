"""CuPy where it is installed, else None: a machine without it can still ask for kernels' texts and compile them.

Modules that use CuPy only inside functions import it from here, so that they can be imported on any machine. Nothing
that needs a device may be called where ``cp`` is None.
"""

from __future__ import annotations

import importlib
from typing import Any

cp: Any
runtime: Any
"""``cupy.cuda.runtime``, the CUDA runtime API."""

try:
    cp = importlib.import_module("cupy")
    runtime = importlib.import_module("cupy.cuda.runtime")
except ImportError:  # no GPU here: see server/engine/cuda/check.py
    cp = runtime = None

__all__ = ["cp", "runtime"]
