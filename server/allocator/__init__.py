"""The caching allocator: PyTorch's algorithm, statistics and formats, with an account for every session.

``allocator`` puts the layers together: ``core`` is a small cache of blocks; ``cache`` has the layers that save time,
``sessions`` what sessions may do, ``reports`` what people look at; ``upstream`` is where segments come from.

Statistics are PyTorch's after every step of a trace. What differs on purpose: waiting streams are asked in the order in
which they began to wait (PyTorch's order is that of a hash table); a block that passes from one session to another is
zeroed; a quota refuses before the device is asked and counts as ``num_oom_rejections``. A session's number must never
be used again while the allocator lives: it tells whose data a free block holds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from server.allocator.allocator import CachingAllocator
    from server.allocator.core.block import Block, Segment
    from server.allocator.core.config import AllocatorConfig
    from server.allocator.upstream.cuda import CudaUpstream
    from server.allocator.upstream.host import HostUpstream
    from server.allocator.upstream.simulated import SimulatedUpstream

__all__ = [
    "AllocatorConfig",
    "Block",
    "CachingAllocator",
    "CudaUpstream",
    "HostUpstream",
    "Segment",
    "SimulatedUpstream",
]


_HOMES: Final = {
    "AllocatorConfig": "core.config",
    "Block": "core.block",
    "CachingAllocator": "allocator",
    "CudaUpstream": "upstream.cuda",
    "HostUpstream": "upstream.host",
    "Segment": "core.block",
    "SimulatedUpstream": "upstream.simulated",
}
"""Modules are imported when their names are asked for: the gateway reads options here, and needs no NumPy for that."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
