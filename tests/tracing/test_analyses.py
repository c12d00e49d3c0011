"""What analyses of exported traces rely on: Perfetto, Holistic Trace Analysis and TensorBoard's plugin.

Each test asserts the fields and the places by which one of them computes its figures. The tools themselves are no
dependencies; their figures on such traces were compared with them by hand.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from telegrad_protocol.tracing import chrome, recording
from telegrad_protocol.tracing.recording import Descriptor, DeviceWork, Recording, packed
from telegrad_protocol.tracing.timeline import Timeline

from .profiled import train
from .test_attribution import PROPERTIES, _bytes

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
US = 1000


def _trained_on_a_gpu(seed: int) -> tuple[list[dict[str, Any]], float]:
    """Return the events of two labelled steps whose operations launch kernels on two streams, and the time of these."""
    kinds = [(recording.OPERATION, "mm"), (recording.RANGE, "forward"), (recording.RANGE, "ProfilerStep#3")]
    rng = random.Random(seed)
    events, kernels, calls, total = [], [], [], 0
    free = {7: 0, 13: 0}
    for step in range(2):
        begin = at = (1 + step * 9000) * US
        for _ in range(rng.randrange(3, 9)):
            number, stream = len(kernels) + 1, rng.choice([7, 13])
            events.append((0, at, at + 20 * US, 0, number, number, 1, 0))
            calls.append((1, at + 5 * US, at + 9 * US, number))
            start = max(at + 12 * US, free[stream] + 2 * US)
            free[stream] = start + rng.randrange(1, 90) * US
            total += free[stream] - start
            kernels.append((0, 0, start, free[stream], number, stream, 0, 0, packed(4, 1, 1), packed(32, 1, 1), 32, 0))
            at += rng.randrange(21, 60) * US
        events += [(1, begin, at, 0, 0, 0, 0, 0), (2, begin - 1, at + 1, 0, 0, 0, 0, 0)]
    work = DeviceWork(
        0, recording.CUPTI_TIMES, "", ["gemm", "cudaLaunchKernel"], _bytes(*kernels), _bytes(*calls), b"", PROPERTIES
    )
    descriptors = [Descriptor(*kind) for kind in kinds]
    recorded = Recording(99, 0, 1 << 40, descriptors, [], _bytes(*events), [work], [])
    timeline = Timeline(recording.decode(recording.encode(recorded)))
    return json.loads(json.dumps(chrome.events_of(timeline))), total / US


def _covered(events: list[dict[str, Any]]) -> float:
    total, end = 0.0, 0.0
    for begin, last in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        total += max(0.0, last - max(begin, end))
        end = max(end, last)
    return total


def test_only_work_of_a_gpu_has_a_stream(seed: int) -> None:
    """Holistic Trace Analysis takes everything with a stream for work, and what lies between for idle time."""
    events, total = _trained_on_a_gpu(seed)
    with_stream = [event for event in events if "stream" in event.get("args", {})]
    assert {event["cat"] for event in with_stream} == {"kernel"}
    by_stream = defaultdict(list)
    for event in with_stream:
        by_stream[event["args"]["stream"]].append(event)
    assert abs(sum(map(_covered, by_stream.values())) - total) < 0.01
    gaps = [event for event in events if event.get("cat") == "gap"]
    assert gaps and all(event["tid"] not in by_stream for event in gaps)


def test_kernels_lie_in_their_labels_on_the_gpu(seed: int) -> None:
    """Holistic Trace Analysis asks which label on a stream's row contains a kernel; steps would be counted twice."""
    events, _ = _trained_on_a_gpu(seed)
    labels = [event for event in events if event.get("cat") == "gpu_user_annotation"]
    assert {event["name"] for event in labels} == {"forward"}
    annotations = {e["args"]["External id"] for e in events if e.get("cat") == "user_annotation"}
    assert all(event["args"]["External id"] in annotations for event in labels)
    rows = defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            rows[event["pid"], event["tid"]].append(event)
    assert {(event["pid"], event["tid"]) for event in labels} == set(rows)
    for row, kernels in rows.items():
        mine = [(e["ts"], round(e["ts"] + e["dur"], 3)) for e in labels if (e["pid"], e["tid"]) == row]
        ends = {end for extent in mine for end in extent}
        for kernel in kernels:
            begin, end = kernel["ts"], round(kernel["ts"] + kernel["dur"], 3)
            assert any(first <= begin and end <= last for first, last in mine)
            ends -= {begin, end}
        assert not ends, "a label begins with its first kernel and ends with its last"


def test_boxes_of_a_row_lie_in_each_other_and_arrows_begin_in_boxes(tg: Any, seed: int, tmp_path: Path) -> None:
    """Perfetto leaves out what overlaps on a row, and arrows that touch nothing."""
    with tg.profiler.profile(profile_memory=True, schedule=tg.profiler.schedule(wait=0, warmup=0, active=3)) as profile:
        train(tg, 3, profile)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    exported = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    for events in (exported, _trained_on_a_gpu(seed)[0]):
        rows = defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                begin = round(event["ts"] * 1000)
                rows[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 1000), event["name"]))
        for row in rows.values():
            stack: list[tuple[int, int, str]] = []
            for box in sorted(row, key=lambda box: (box[0], -box[1])):
                while stack and stack[-1][1] <= box[0]:
                    stack.pop()
                assert not stack or box[1] <= stack[-1][1], (box, stack[-1])
                stack.append(box)
        for event in events:
            if event["ph"] in "sf":
                boxes, at = rows[event["pid"], event["tid"]], round(event["ts"] * 1000)
                assert any(begin <= at <= end for begin, end, _ in boxes), event


def test_changes_of_memory_are_told_apart(tg: Any, tmp_path: Path) -> None:
    """TensorBoard's plugin pairs what is taken with what is freed by addresses, which are not known."""
    with tg.profiler.profile(profile_memory=True) as profile:
        for _ in range(4):
            tg.ones(1000).exp()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    changes = [event["args"] for event in events if event["name"] == "[memory]"]
    assert len(changes) > 4 and len({change["Addr"] for change in changes}) == len(changes)
    totals = [change["Total Allocated"] for change in changes]
    assert [change["Bytes"] for change in changes[1:]] == [b - a for a, b in pairwise(totals)]


def test_a_trace_says_which_process_of_a_group_it_is_of(tg: Any, tmp_path: Path) -> None:
    """Holistic Trace Analysis tells the traces of a group's processes apart by their ranks."""
    path = tmp_path / "trace.json"
    with tg.profiler.profile() as profile:
        tg.ones(2)
    profile.export_chrome_trace(str(path))
    assert "distributedInfo" not in json.loads(path.read_text())
    tg.distributed.init_process_group("gloo", store=tg.distributed.HashStore(), rank=0, world_size=1)
    try:
        profile.export_chrome_trace(str(path))
    finally:
        tg.distributed.destroy_process_group()
    about = json.loads(path.read_text())["distributedInfo"]
    assert about == {"backend": "gloo", "rank": 0, "world_size": 1, "pg_count": 1}
