"""Kernels tuned for the host: loops over blocks that fit into the cache, and BLAS where NumPy's loops are slow.

Importing the package imports all of its modules, which register their kernels in place of the generic ones of
``server.engine.ops``. They are imported in alphabetical order; an operation has at most one ``@kernel`` among them.
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
