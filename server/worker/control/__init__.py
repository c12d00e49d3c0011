"""Answers to control requests: what the gateway's HTTP interface asks of a session or a host; see ``ipc.requests``.

Each function is marked with the type of request that it answers. All modules of this folder are imported here, so that
a new one is found by being there. An answer never fails the session's stream of instructions.
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)
