"""A snapshot of all segments and blocks in the format of ``torch.cuda.memory._snapshot``.

PyTorch's viewer reads it. Each block and entry also has ``owner``, the session it is accounted to. Reads the
allocator's parts and changes nothing.
"""

from __future__ import annotations

import pickle  # noqa: TID251  written for PyTorch's viewer, never read
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from server.allocator.core.block import Block, Segment
from server.allocator.core.config import UNBOUNDED, AllocatorConfig
from server.allocator.reports.history import History

Snapshot = dict[str, Any]
IsWaiting = Callable[[Block], bool]


def take_snapshot(
    segments: Iterable[Segment], history: History, config: AllocatorConfig, is_waiting: IsWaiting, owner: int | None
) -> Snapshot:
    """Describe segments, blocks, trace and settings; of another session's blocks ``owner`` sees only where they lie."""
    runs = [(segment, run) for segment in segments for run in _mapped_runs(segment)]
    described = [_describe_segment(segment, run, history, is_waiting, owner) for segment, run in runs]
    return {
        "segments": sorted(described, key=lambda segment: segment["address"]),
        "device_traces": [history.entries_of(owner)],
        "allocator_settings": _settings(config),
        "external_annotations": [],
    }


def to_pickle(snapshot: Snapshot) -> bytes:
    """The snapshot as the file that pytorch.org/memory_viz opens."""
    return pickle.dumps(snapshot, protocol=4)


def _mapped_runs(segment: Segment) -> list[list[Block]]:
    """Return the blocks of a segment as runs with memory behind them: one run, or several of an expandable segment."""
    return [list(group) for mapped, group in groupby(segment.blocks(), lambda block: block.mapped) if mapped]


def _describe_segment(
    segment: Segment, run: list[Block], history: History, is_waiting: IsWaiting, owner: int | None
) -> Snapshot:
    blocks = [_describe_block(block, history, is_waiting, owner) for block in run]
    active = [block for block in blocks if block["state"] != "inactive"]
    return {
        "device": 0,
        "address": run[0].pointer,
        "total_size": sum(block.size for block in run),
        "stream": segment.stream,
        "segment_type": "small" if segment.pool.is_small else "large",
        "segment_pool_id": segment.pool.identity,
        "is_expandable": segment.page_size > 0,
        "allocated_size": sum(block["size"] for block in active if block["state"] == "active_allocated"),
        "active_size": sum(block["size"] for block in active),
        "requested_size": sum(block["requested_size"] for block in active),
        "frames": history.frames_of_segment(run[0].pointer) if owner is None else [],
        "blocks": blocks,
    }


def _describe_block(block: Block, history: History, is_waiting: IsWaiting, owner: int | None) -> Snapshot:
    state = "inactive" if block.is_free else "active_awaiting_free" if is_waiting(block) else "active_allocated"
    is_shown = not block.is_free and owner in (None, block.owner)
    return {
        "address": block.pointer,
        "size": block.size,
        "requested_size": block.requested if is_shown else 0 if block.is_free else block.size,
        "state": state,
        "frames": history.frames_of(block.pointer) if is_shown else [],
        "owner": block.owner if is_shown else None,
    }


def _settings(config: AllocatorConfig) -> Snapshot:
    unbounded, divisions = config.max_split_size == UNBOUNDED, config.roundup_power2_divisions
    return {
        "max_split_size": -1 if unbounded else config.max_split_size,
        "max_non_split_rounding_size": config.max_non_split_rounding,
        "garbage_collection_threshold": config.garbage_collection_threshold,
        "per_process_memory_fraction": config.per_process_memory_fraction,
        "expandable_segments": config.expandable_segments,
        "roundup_power2_divisions": {str(1 << power): steps for power, steps in enumerate(divisions)},
    }
