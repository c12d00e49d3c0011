"""Segments from two functions of a shared library, as PyTorch's pluggable allocators have them.

    void* alloc(ssize_t size, int device, cudaStream_t stream);      // NULL where there is no room
    void  free(void* pointer, ssize_t size, int device, cudaStream_t stream);

Unlike PyTorch's they serve segments, not tensors, so that blocks are cached as ever. All else, expandable segments
included, is left to the upstream in front of which they stand. Knows no blocks.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from server.allocator.core.block import Segment
from server.allocator.core.upstream import Upstream
from telegrad_protocol.errors import ConfigurationError

VARIABLE = "TELEGRAD_CUDA_ALLOCATOR"
ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)


class PluggableUpstream:
    """An upstream whose segments come from functions at these addresses."""

    is_zeroed = False

    def __init__(
        self, behind: Upstream, alloc_fn: int, free_fn: int, index: int = 0, flush: Callable[[], None] = lambda: None
    ) -> None:
        self._behind = behind
        # Called before memory is given back, as by ``CudaUpstream``.
        self._flush = flush
        self._alloc, self._free = ALLOC(alloc_fn), FREE(free_fn)
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def obtain(self, nbytes: int, stream: int) -> Segment | None:
        pointer = self._alloc(nbytes, self._index, stream)
        return Segment(int(pointer), nbytes) if pointer else None

    def give_back(self, segment: Segment) -> None:
        self._flush()
        if segment.page_size:
            self._behind.give_back(segment)
        else:
            self._free(segment.pointer, segment.size, self._index, segment.stream)


def plugged_in(upstream: Upstream, index: int = 0, flush: Callable[[], None] = lambda: None) -> Upstream:
    """The upstream behind the library that ``TELEGRAD_CUDA_ALLOCATOR=path:alloc:free`` names, or as it is."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return upstream
    path, *names = text.rsplit(":", 2)
    if len(names) != 2:
        raise ConfigurationError(f"{VARIABLE}: expected path:alloc:free, got {text!r}")
    try:
        library = ctypes.CDLL(path)
        addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (OSError, AttributeError) as error:
        raise ConfigurationError(f"{VARIABLE}: {error}") from None
    return PluggableUpstream(upstream, addresses[0] or 0, addresses[1] or 0, index, flush)
