"""Implementations of all operations: kernels that are generic over the array library, and derivative formulas.

A file is a family, and large fields have folders of families; both are named as those of the contracts are. Every
module registers its implementations when it is imported. Importing the package imports them all, then
``server.engine.cpu``, whose kernels replace the generic ones on the host. An operation that no module implements is an
error at import. The order of the operation table is that of the contracts, not of these modules.
"""

from __future__ import annotations

import importlib
import pkgutil

from server.engine import autocast as _autocast  # registers the boxed kernels of the Autocast keys
from server.engine.autograd import kernel as _autograd  # registers the boxed kernel of the Autograd key
from server.engine.autograd import shown_nodes as _shown_nodes  # registers what is told of composites
from server.engine.registry import check_complete

__all__ = ["_autocast", "_autograd", "_cpu", "_shown_nodes"]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

from server.engine import cpu as _cpu  # noqa: E402 - its kernels replace the generic ones registered above

check_complete()
