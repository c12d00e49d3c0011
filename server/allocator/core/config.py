"""The options of the allocator.

Knows numbers and names only. `options.py` reads them from text.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from server.allocator.core import sizes

UNBOUNDED = sys.maxsize
ROUNDUP_INTERVALS = 16


@dataclass(frozen=True, slots=True)
class AllocatorConfig:
    """The options of the allocator, with PyTorch's defaults. Sizes are in bytes."""

    max_split_size: int = UNBOUNDED
    max_non_split_rounding: int = sizes.LARGE_SEGMENT
    # How many steps a power of two is divided into, one entry for each from 1 MiB to 64 GiB; 0 rounds to 512 bytes.
    roundup_power2_divisions: tuple[int, ...] = (0,) * ROUNDUP_INTERVALS
    garbage_collection_threshold: float = 0.0
    per_process_memory_fraction: float = 1.0
    expandable_segments: bool = False
    pinned_use_cuda_host_register: bool = False
    # Pinned blocks larger than either are not rounded up to a power of two. Those larger than the second are not cached
    # when they are freed, which PyTorch does without a limit.
    pinned_max_round_threshold: int = UNBOUNDED
    pinned_max_cached_size: int = 1024 * sizes.MIB

    def round_size(self, nbytes: int) -> int:
        """Return how many bytes a request for ``nbytes`` takes."""
        if nbytes < sizes.MIN_BLOCK:
            return sizes.MIN_BLOCK
        divisions = self.divisions_for(nbytes)
        if divisions > 1 and nbytes > sizes.MIN_BLOCK * divisions:
            return sizes.round_power2_division(nbytes, divisions)
        return sizes.round_up(nbytes, sizes.MIN_BLOCK)

    def round_pinned(self, nbytes: int) -> int:
        """Return how many bytes of pinned memory a request for ``nbytes`` takes."""
        if nbytes > self.pinned_max_round_threshold or nbytes > self.pinned_max_cached_size:
            return nbytes
        return max(sizes.MIN_BLOCK, 1 << (nbytes - 1).bit_length())

    def divisions_for(self, nbytes: int) -> int:
        """Return how many steps a power of two is divided into at this size; 0 and 1 mean none."""
        divisions = self.roundup_power2_divisions
        index = nbytes.bit_length() - 1 - (sizes.MIB.bit_length() - 1)
        return divisions[min(max(index, 0), len(divisions) - 1)]
