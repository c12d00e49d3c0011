"""Which GPUs can access each other's memory, and letting them do it."""

from __future__ import annotations

from functools import cache

from .cupy_module import runtime
from .current_device import current_device

_ALREADY_ENABLED = 704
"""cudaErrorPeerAccessAlreadyEnabled: CuPy may have done it."""


@cache
def has_peer_access(index: int, peer: int) -> bool:
    """Whether the hardware lets a GPU access the memory of another one."""
    return bool(runtime.deviceCanAccessPeer(index, peer))


@cache
def enable_peer_access(first: int, second: int) -> None:
    """Let two GPUs access each other's memory, as far as they can; it is done once for a pair."""
    for index, peer in ((first, second), (second, first)):
        if has_peer_access(index, peer):
            with current_device(index):
                _enable(peer)


def _enable(peer: int) -> None:
    try:
        runtime.deviceEnablePeerAccess(peer)
    except runtime.CUDARuntimeError as error:
        if error.status != _ALREADY_ENABLED:
            raise
