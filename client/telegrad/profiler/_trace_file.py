"""The trace as a file: the worker's part, and beside it the client's calls, frames and waits on the same clock."""

from __future__ import annotations

import gzip
import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from telegrad_protocol.tracing import chrome
from telegrad_protocol.tracing.chrome import Event, complete, flow, named_process, named_thread
from telegrad_protocol.tracing.recording import OPERATION, Descriptor
from telegrad_protocol.tracing.spans import shown_name

from ._build import Wanted, client_calls
from ._capture import Captured
from ._log import told
from ._range_log import RangeNote

WIRE_ROW, WAIT_ROW, ARRIVAL_ROW = 1, 2, 3


def trace_document(captured: Captured, ranges: list[RangeNote], metadata: dict[str, Any], wanted: Wanted) -> Event:
    """Return the whole trace as JSON has it."""
    timeline = captured.timeline
    events = [*chrome.events_of(timeline, wanted.shapes), *_client_events(captured, ranges)]
    clocks = captured.clocks
    notes = {
        "clock_offset_ns": clocks.offset, "clock_error_ns": clocks.error, "clocks_are_the_same": clocks.is_same,
        "client_process": _client_pid(captured),
    }  # fmt: skip
    whole = chrome.document(events, timeline, captured.wall_offset, notes)
    return {**_settings(wanted), **metadata, **whole}


def _settings(wanted: Wanted) -> dict[str, Any]:
    """Return what was to be recorded, as PyTorch's traces say it, and where."""
    settings = {
        "record_shapes": wanted.shapes, "profile_memory": wanted.memory, "with_stack": wanted.stacks,
        "with_flops": wanted.flops,
    }  # fmt: skip
    chosen = {name: 1 for name, is_chosen in settings.items() if is_chosen}
    return {**chosen, **_group(), "host_name": socket.gethostname(), "trace_id": uuid4().hex.upper()}


def _group() -> dict[str, Any]:
    """Return which process of the program's group this is, by which tools tell the traces of several apart."""
    distributed = sys.modules.get("telegrad.distributed")
    if distributed is None or not distributed.is_initialized():
        return {}
    about = {
        "backend": distributed.get_backend(), "rank": distributed.get_rank(),
        "world_size": distributed.get_world_size(), "pg_count": 1,
    }  # fmt: skip
    return {"distributedInfo": about}


def write_trace(path: str, document: Event) -> None:
    """Write a trace, compressed if the name ends in ``.gz``."""
    if str(path).endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as packed:
            json.dump(document, packed)
        return
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)


def _client_pid(captured: Captured) -> int:
    """The number of this process; another one where the worker is a part of it."""
    own = os.getpid()
    return own if own != captured.timeline.recorded.process else own + (1 << 24)


def _client_events(captured: Captured, ranges: list[RangeNote]) -> Iterator[Event]:
    pid, log = _client_pid(captured), captured.log
    yield from named_process(pid, "telegrad client", "client", 0)
    for thread, name in log.threads.items():
        yield from named_thread(pid, thread, f"thread {name}", 10)
    yield from named_thread(pid, WIRE_ROW, "frames sent", 20)
    yield from named_thread(pid, WAIT_ROW, "round trips", 21)
    yield from named_thread(pid, ARRIVAL_ROW, "frames at the worker", 22)
    for call in log.calls:
        name = shown_name(Descriptor(OPERATION, call.name))
        stack = told(call.stack)
        args = {"Call stack": "; ".join(stack)} if stack else {}
        yield complete("client_call", name, pid, call.thread, call.begin / 1000, call.end / 1000, args)
    for note in ranges:
        yield complete("client_annotation", note.name, pid, note.thread, note.begin / 1000, note.end / 1000, {})
    for frame in log.frames:
        yield complete("wire", "frame", pid, WIRE_ROW, frame.begin / 1000, frame.end / 1000, {"bytes": frame.nbytes})
    for wait in log.waits:
        where = {"line": f"{wait.file}({wait.line}): {wait.function}", "bytes received": wait.nbytes}
        yield complete("round_trip", wait.reason, pid, WAIT_ROW, wait.begin / 1000, wait.end / 1000, where)
    for at, nbytes in captured.timeline.frames:
        yield complete("wire", "frame arrives", pid, ARRIVAL_ROW, at, at, {"bytes": nbytes})
    yield from _arrows(captured, pid)


def _arrows(captured: Captured, pid: int) -> Iterator[Event]:
    worker = captured.timeline.recorded.process
    spans = {span.number: span for span in captured.timeline.spans}
    for number, call in client_calls(captured).items():
        yield flow("s", "client_to_worker", number, pid, call.thread, call.begin / 1000)
        yield flow("f", "client_to_worker", number, worker, worker, spans[number].begin)
