"""Allocations and frees in C, where that is compiled: the same as `Recall` and `FastBins` do, which say what they do.

Whatever is unusual about a call, C leaves to Python.
"""

from __future__ import annotations

from typing import Any, Final

from server import native
from server.allocator.cache.fast_bins import FastBins
from server.allocator.cache.pieces import Pieces
from server.allocator.cache.recall import LONGEST_LOG, SEEN, UNKNOWN, Recall
from server.allocator.cache.steps import Step
from server.allocator.cache.watch import OTHERS, Signs, Watch
from server.allocator.cache.ways import Ways
from server.allocator.core.account import Account, Request
from server.allocator.core.block import Bin, Block, FreeList, Pool, Segment
from server.allocator.core.heap import Heap
from server.allocator.core.layer import Calls, Layer
from server.allocator.core.ledger import GUARDS, UNLIMITED, WIDTH, Ledger
from server.allocator.core.splitting import replace_by_copy
from server.replay_policy import ReplayPolicy


def _prepared() -> Any:
    module = native.load()
    if module is None:
        return None
    classes = (
        Block, Bin, FreeList, Pool, Segment, Request, Account, Ledger, Heap, FastBins, Recall, Pieces, ReplayPolicy,
        Signs, Step, Watch,
    )  # fmt: skip
    module.prepare({
        **{kind.__name__: kind for kind in classes},
        "bins_allocate": FastBins.allocate, "bins_free": FastBins.free, "split_with_care": FastBins._split_with_care,
        "coalesce_with_next": FastBins._coalesce_with_next, "recall_allocate": Recall.allocate,
        "recall_free": Recall.free, "allocate_anew": Recall.allocate_anew, "free_anew": Recall.free_anew,
        "free_in_cooldown": Recall._free_in_cooldown, "replace_by_copy": replace_by_copy,
        "enter_without": Recall._enter_without, "guards": GUARDS, "unlimited": UNLIMITED, "field_bits": WIDTH - 1,
        "unknown": UNKNOWN, "seen": SEEN, "longest_log": LONGEST_LOG, "others": OTHERS,
    })  # fmt: skip
    return module


module: Final = _prepared()
"""The module of C; None where calls are Python's."""


def bins_layer(bins: FastBins) -> Layer:
    """Return the layer of fast bins."""
    return bins if module is None else Calls(*module.bound_to_bins(bins))


def ways_of(recall: Recall) -> Ways:
    """Return the functions by which a `Recall` carries out calls."""
    return Ways(*module.bound_to_recall(recall)) if module is not None else recall.ways()
