"""Profiles of a GPU's work: kernels with times, their operations, graphs, copies, and what is left afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import telegrad
from server.engine.profiling import cupti_activity
from telegrad_protocol.tracing.recording import CallRow, FlushRow, KernelRow, PartRow, rows_of

from .test_traces import read_strictly

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["cupti", "events"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How times are taken: by CUPTI, if it is there, and by events."""
    if request.param == "events":
        monkeypatch.setattr(cupti_activity, "_opened", ["CUPTI is not to be used in this test"])
    elif isinstance(why := cupti_activity.open_activity(), str):
        pytest.skip(why)
    return str(request.param)


def _work(tg: Any, profile: Any) -> Any:
    """What the current GPU has done."""
    (work,) = [each for each in profile.device_work() if each.device == tg.cuda.current_device()]
    return work


def test_kernels_belong_to_operations(cuda_tg: Any, way: str, tmp_path: Path) -> None:
    tg = cuda_tg
    weight = tg.randn(512, 512, requires_grad=True)
    x = tg.randn(512, 512)

    def step() -> None:
        tg.nn.functional.gelu(x @ weight).sum().backward()
        weight.grad = None

    for _ in range(6):
        step()
    tg.cuda.synchronize()
    with tg.profiler.profile(with_stack=True) as profile:
        for _ in range(8):
            step()
        host = tg.ones(1 << 16, device="cpu").cuda()
        host.add_(1)
    work = _work(tg, profile)
    assert work.times == way and (way == "cupti") is (work.why == ""), work.why
    rows = {event.key: event for event in profile.key_averages()}
    assert rows["aten::gelu"].self_device_time_total > 0
    assert rows["aten::matmul"].device_time_total > 0
    assert rows["aten::add_"].device_time_total > 0
    kernels = [event for event in profile.events() if event.device_type.name == "CUDA"]
    assert kernels and all(0 < event.time_range.elapsed_us() < 1e5 for event in kernels)
    begins = [event.time_range.start for event in profile.events() if event.name == "aten::gelu"]
    assert min(begins) < max(event.time_range.start for event in kernels)
    table = profile.key_averages().table(sort_by="cuda_time_total")
    assert "Self CUDA" in table and "CUDA total" in table and "Self CUDA time total" in table
    path = tmp_path / "trace.json"
    profile.export_chrome_trace(str(path))
    document = json.loads(path.read_text())
    by_category = read_strictly(document)
    assert by_category["kernel"] and document["deviceProperties"][0]["numSms"] > 0
    assert document["telegrad"]["kernel_times"]["0"] == way
    assert bool(document["telegrad"]["notes"]) is (way == "events")
    if way == "cupti":
        assert by_category["gpu_memcpy"]
        whole = sum(event["dur"] for event in by_category["kernel"])
        named = sum(e.self_device_time_total for e in profile.key_averages() if e.device_type.name == "CPU")
        assert named == pytest.approx(whole + sum(e["dur"] for e in by_category["gpu_memcpy"]), rel=0.05)


def test_kernels_of_calls_that_come_again_belong_to_each_of_them(cuda_tg: Any, way: str) -> None:
    """With CUPTI they are launched as one graph, whose kernels are told apart by their order."""
    tg = cuda_tg
    x, weight = tg.randn(256, 256), tg.randn(256, 256)

    def run(count: int) -> None:
        for _ in range(count):
            y = x
            for _ in range(8):
                y = tg.softmax((y.sin() @ weight).sigmoid(), -1)
            y.sum().item()

    run(12)
    for _ in range(2):
        with tg.profiler.profile() as profile:
            run(12)
    events = [event for event in profile.events() if event.device_type.name == "CPU"]
    assert any(event.name == "telegrad::stretch" for event in events) is (way == "cupti")
    for name in ("aten::sin", "aten::matmul", "aten::sigmoid", "aten::softmax"):
        own = [event for event in events if event.name == name]
        launched: dict[tuple[str, ...], list[int]] = {}
        for place, event in enumerate(own):
            kernels = [kernel.name for part in (event, *event.cpu_children) for kernel in part.kernels]
            launched.setdefault(tuple(kernels), []).append(place)
        assert len(own) == 8 * 12 and len(launched) == 1 and () not in launched, _told(profile, name, launched)


def _told(profile: Any, name: str, launched: dict[tuple[str, ...], list[int]]) -> str:
    """What kernels the operations of a name have, at which places, and what was noted of all launches."""
    lines = [f"{len(places)} of {name} have {kernels}, at {places}" for kernels, places in launched.items()]
    work = _work(telegrad, profile)
    calls = {row.correlation: row for row in rows_of(CallRow, work.calls)}
    by_call: dict[int, list[Any]] = {}
    for row in rows_of(KernelRow, work.kernels):
        by_call.setdefault(row.correlation, []).append(row)
    base = min(row.begin for row in calls.values())
    noted = [(row.begin - base, f"row {row[2:]} to {row.end - base}") for row in rows_of(FlushRow, work.flushes)]
    for correlation, rows in by_call.items():
        call, names = calls.get(correlation), [work.names[row.name][:24] for row in sorted(rows, key=_begin)]
        at, until = (rows[0].begin, -1) if call is None else (call.begin, call.end - base)
        noted.append((at - base, f"call to {until}, graph {rows[0].graph}, {len(names)}: {names}"))
    lines += [f"parts {list(rows_of(PartRow, work.parts))}, {work.dropped} dropped"]
    return "\n".join([*lines, *[f"{at:>10} {text}" for at, text in sorted(noted)]])


def _begin(row: Any) -> int:
    return int(row.begin)


def test_kernel_times_are_those_between_events(cuda_tg: Any, way: str) -> None:
    tg = cuda_tg
    x = tg.randn(1 << 26)
    for _ in range(3):
        x + x
    first, last = tg.cuda.Event(enable_timing=True), tg.cuda.Event(enable_timing=True)
    tg.cuda.synchronize()
    first.record()
    for _ in range(10):  # without a profile, so that the device never waits for the host
        x + x
    last.record()
    measured = first.elapsed_time(last) * 1e3
    with tg.profiler.profile() as profile:
        for _ in range(10):
            x + x
    profiled = next(event for event in profile.key_averages() if event.key == "aten::add").device_time_total
    assert profiled == pytest.approx(measured, rel=0.1)


def test_results_and_queues_are_as_ever_after_a_profile(cuda_tg: Any, way: str) -> None:
    tg = cuda_tg
    x = tg.randn(64, 64)
    expected = ((x * 2) + 1).relu().tolist()
    with tg.profiler.profile():
        assert ((x * 2) + 1).relu().tolist() == expected
    assert ((x * 2) + 1).relu().tolist() == expected
    with tg.profiler.profile() as profile:
        x.sum()
    assert "aten::sum" in {event.name for event in profile.events()}


def test_captures_within_a_profile_leave_it_whole(cuda_tg: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward passes, a compiled function and a graph of the program's are captured while the profile goes on."""
    from server.engine.device.cuda_graphs import CudaGraph

    tg, captures, capture = cuda_tg, list[int](), CudaGraph.of
    monkeypatch.setattr(CudaGraph, "of", lambda stream, work: captures.append(stream) or capture(stream, work))
    weight, x = tg.randn(128, 128, requires_grad=True), tg.randn(128, 128)
    compiled = tg.compile(lambda x: (x * 2 + 1).relu().sum())
    expected = (x @ x).numpy()
    with tg.profiler.profile() as profile:
        for _ in range(40):
            tg.nn.functional.gelu(x @ weight).sum().backward()
            weight.grad = None
            compiled(x)
        graph = tg.cuda.CUDAGraph()
        with tg.cuda.graph(graph):
            y = x @ x
        graph.replay()
        tg.cuda.synchronize()
    assert captures, "nothing was captured within the profile"
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-3, atol=1e-2)
    work = _work(tg, profile)
    assert work.times == way and work.dropped == 0, work.why
    names = {event.name for event in profile.events()}
    assert "aten::gelu" in names and ("telegrad::graph_launch" in names) is (way == "events")
    assert next(e for e in profile.key_averages() if e.key == "aten::gelu").device_time_total > 0


def test_a_pair_of_events_that_was_captured_is_left_out(cuda_device: str) -> None:
    from server.engine.device.cupy_module import cp, runtime
    from server.engine.profiling.event_pairs import EventPairs

    with cp.cuda.Device(int(cuda_device.partition(":")[2])) as device, cp.cuda.Stream(non_blocking=True) as stream:
        pairs = EventPairs(runtime, device.id)
        base = pairs.base(stream.ptr)
        x = cp.ones(1 << 20)
        for is_captured in (False, True, False):
            if is_captured:
                stream.begin_capture()
            number = pairs.begin(stream.ptr)
            x += 1
            pairs.end(number, stream.ptr)
            if is_captured:
                stream.end_capture()
        found = {number: end - begin for number, _, begin, end in pairs.times(base, waits=True)}
        pairs.release(base)
    assert sorted(found) == [0, 2] and all(0 < passed < 10**9 for passed in found.values())
    assert pairs.dropped == 1


def test_a_second_profile_makes_no_events(cuda_tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from server.engine.device.cupy_module import runtime

    monkeypatch.setattr(cupti_activity, "_opened", ["CUPTI is not to be used in this test"])
    tg, made, create = cuda_tg, list[int](), runtime.eventCreateWithFlags
    x = tg.randn(64, 64)
    for is_second in (False, True):
        if is_second:
            monkeypatch.setattr(runtime, "eventCreateWithFlags", lambda flags: made.append(flags) or create(flags))
        with tg.profiler.profile() as profile:
            for _ in range(700):
                x + x
    work = _work(tg, profile)
    assert work.times == "events" and len(work.kernels) >= 700 * 12 * 8
    assert made == []
