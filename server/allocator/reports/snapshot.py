"""A picture of all segments and blocks in the format of ``torch.cuda.memory._snapshot``.

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

Picture = dict[str, Any]
IsWaiting = Callable[[Block], bool]


def picture(
    segments: Iterable[Segment], history: History, config: AllocatorConfig, is_waiting: IsWaiting, owner: int | None
) -> Picture:
    """Segments, blocks, trace and settings; for one session only its own blocks, lines and events are told."""
    drawn = [
        _draw(segment, blocks, history, is_waiting, owner) for segment in segments for blocks in _stretches(segment)
    ]
    return {
        "segments": sorted(drawn, key=lambda drawing: drawing["address"]),
        "device_traces": [history.entries_of(owner)],
        "allocator_settings": _settings(config),
        "external_annotations": [],
    }


def to_pickle(snapshot: Picture) -> bytes:
    """The snapshot as the file that pytorch.org/memory_viz opens."""
    return pickle.dumps(snapshot, protocol=4)


def _stretches(segment: Segment) -> list[list[Block]]:
    """The blocks of a segment, in one piece or, where it is expandable, in as many as have memory behind them."""
    return [list(group) for mapped, group in groupby(segment.blocks(), lambda block: block.mapped) if mapped]


def _draw(
    segment: Segment, stretch: list[Block], history: History, is_waiting: IsWaiting, owner: int | None
) -> Picture:
    blocks = [_draw_block(block, history, is_waiting, owner) for block in stretch]
    active = [block for block in blocks if block["state"] != "inactive"]
    return {
        "device": 0,
        "address": stretch[0].pointer,
        "total_size": sum(block.size for block in stretch),
        "stream": segment.stream,
        "segment_type": "small" if segment.pool.is_small else "large",
        "segment_pool_id": segment.pool.identity,
        "is_expandable": segment.page_size > 0,
        "allocated_size": sum(block["size"] for block in active if block["state"] == "active_allocated"),
        "active_size": sum(block["size"] for block in active),
        "requested_size": sum(block["requested_size"] for block in active),
        "frames": history.frames_of_segment(stretch[0].pointer) if owner is None else [],
        "blocks": blocks,
    }


def _draw_block(block: Block, history: History, is_waiting: IsWaiting, owner: int | None) -> Picture:
    state = "inactive" if block.is_free else "active_awaiting_free" if is_waiting(block) else "active_allocated"
    told = not block.is_free and owner in (None, block.owner)
    return {
        "address": block.pointer,
        "size": block.size,
        "requested_size": block.requested if told else 0 if block.is_free else block.size,
        "state": state,
        "frames": history.frames_of(block.pointer) if told else [],
        "owner": block.owner if told else None,
    }


def _settings(config: AllocatorConfig) -> Picture:
    unbounded = config.max_split_size == UNBOUNDED
    return {
        "max_split_size": -1 if unbounded else config.max_split_size,
        "max_non_split_rounding_size": config.max_non_split_rounding,
        "garbage_collection_threshold": config.garbage_collection_threshold,
        "per_process_memory_fraction": config.per_process_memory_fraction,
        "expandable_segments": config.expandable_segments,
        "roundup_power2_divisions": {str(1 << at): each for at, each in enumerate(config.roundup_power2_divisions)},
    }
