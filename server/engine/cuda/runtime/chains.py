"""Chains: launches of kernels in a row, made as one CUDA graph whose nodes are given other parameters each time.

The driver takes a tenth of the time for a node of a graph that it takes for a launch, also where addresses, numbers and
sizes are others. So launches that have waited are made as a graph of their functions, one after the other, from the
second time on that these functions come in a row; see ``native/chains.h``. Knows nothing of operations.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from server.engine.in_c import launches

_FUNCTIONS: Final = (
    "cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
)  # fmt: skip
"""The driver's functions, in the order in which C takes their addresses."""
_MOST_LAUNCHES: Final = 1 << 13
"""Graphs of one device have so many nodes together at most, of some kilobytes each."""


def new_chains() -> Any:
    """Return what makes launches in chains on the device that is current; None where nothing is in C.

    Its ``perform`` makes launches one after the other, and returns how many of them were made in chains.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        addresses = tuple([ctypes.cast(getattr(driver, name), ctypes.c_void_p).value for name in _FUNCTIONS])
    except (OSError, AttributeError):  # no driver, or one from before there were such graphs
        return None
    return launches.chains(addresses, _MOST_LAUNCHES)
