"""The caching allocator: PyTorch's algorithm, statistics and formats, with an account for every session.

block, pool        pieces of memory; finding the one that fits best
policy             which block serves a request; when the upstream is asked and given back to
ledger, account    running totals and their peaks; what a session holds and may hold
caching            the allocator that the engine calls
host, simulated, cuda    upstreams: where segments come from
statistics, summary, snapshot, history    what people look at

Statistics are PyTorch's after every step of a trace. What differs on purpose: waiting streams are asked in the order in
which they began to wait (PyTorch's order is that of a hash table); a block that passes from one session to another is
zeroed; a quota refuses before the device is asked and counts as ``num_oom_rejections``. A session's number must never
be used again while the allocator lives: it tells whose data a free block holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.allocator.allocator import CachingAllocator
from server.allocator.core.block import Block, Segment
from server.allocator.core.config import AllocatorConfig
from server.allocator.upstream.host import HostUpstream
from server.allocator.upstream.simulated import SimulatedUpstream

if TYPE_CHECKING:
    from server.allocator.upstream.cuda import CudaUpstream

__all__ = [
    "AllocatorConfig",
    "Block",
    "CachingAllocator",
    "CudaUpstream",
    "HostUpstream",
    "Segment",
    "SimulatedUpstream",
]


def __getattr__(name: str) -> Any:
    if name == "CudaUpstream":
        from server.allocator.upstream.cuda import CudaUpstream

        return CudaUpstream
    raise AttributeError(f"module {__name__} has no attribute {name}")
