"""Traces that profiles export: what PyTorch's tools read, on one clock, with every call and its place."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from telegrad_protocol.errors import ArgumentError

from . import profiled as module
from .profiled import profiled, train

FIELDS = {"ph", "name", "pid", "tid", "ts"}
PROFILED = module.__file__


def read_strictly(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Read a trace as PyTorch's tools do: the events by category, everything that they look at checked."""
    assert document["schemaVersion"] == 1 and isinstance(document["deviceProperties"], list)
    assert isinstance(document["baseTimeNanoseconds"], int) and document["displayTimeUnit"] == "ms"
    by_category: dict[str, list[dict[str, Any]]] = {}
    flows: dict[tuple[str, int], set[str]] = {}
    for event in document["traceEvents"]:
        assert event.keys() >= FIELDS, event
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["args"], dict)
            by_category.setdefault(event["cat"], []).append(event)
        elif event["ph"] in "sf":
            flows.setdefault((event["cat"], event["id"]), set()).add(event["ph"])
        else:
            assert event["ph"] in "Mi"
    assert all(ends == {"s", "f"} for ends in flows.values())
    launches = {event["args"]["correlation"]: event for event in by_category.get("cuda_runtime", [])}
    externals = {event["args"]["External id"] for event in by_category.get("cpu_op", [])}
    for kind in ("kernel", "gpu_memcpy", "gpu_memset"):
        for event in by_category.get(kind, []):
            args = event["args"]
            assert {"device", "stream", "correlation", "External id"} <= args.keys()
            assert (event["pid"], event["tid"]) == (args["device"], args["stream"])
            launch = launches[args["correlation"]]
            assert launch["ts"] <= event["ts"] and ("ac2g", args["correlation"]) in flows
            annotated = {e["args"]["External id"] for e in by_category.get("user_annotation", [])}
            assert args["External id"] in externals | {0} | annotated
    return by_category


def test_the_trace_has_client_wire_and_worker_on_one_clock(tg: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    chosen = tg.profiler.schedule(wait=0, warmup=0, active=2, repeat=1)
    with tg.profiler.profile(with_stack=True, schedule=chosen) as profile:
        train(tg, 2, profile)
        profile.add_metadata("run", "7")
    profile.export_chrome_trace(str(path))
    document = json.loads(path.read_text())
    by_category = read_strictly(document)
    assert document["run"] == "7" and document["telegrad"]["clocks_are_the_same"] is True
    steps = [event["name"] for event in by_category["user_annotation"] if event["name"].startswith("ProfilerStep#")]
    assert steps == ["ProfilerStep#0", "ProfilerStep#1"]
    operations = [event for event in by_category["cpu_op"] if event["name"] == "aten::relu"]
    calls = [event for event in by_category["client_call"] if event["name"] == "aten::relu"]
    assert len(operations) == len(calls) == 2
    for call, operation in zip(calls, operations, strict=True):
        assert call["ts"] <= operation["ts"] and __file__ in call["args"]["Call stack"]
        assert f"{PROFILED}(" in operation["args"]["Call stack"]
    assert by_category["wire"] and {event["pid"] for event in calls} != {event["pid"] for event in operations}
    arrows = [event for event in document["traceEvents"] if event.get("cat") == "client_to_worker"]
    assert len(arrows) >= 2 * len(calls)
    inside = [(e["ts"], e["ts"] + e["dur"]) for e in by_category["user_annotation"] if "Step" in e["name"]]
    assert all(any(a <= op["ts"] <= b for a, b in inside) for op in operations), "operations lie in their steps"


def _links(lib: Any, path: Path) -> list[list[tuple[str, str]]]:
    """Train and return, for each backward pass, which operations arrows lead from, and to which nodes."""
    weight, x = lib.full((4, 8), 0.5, requires_grad=True), lib.ones(2, 8)

    def step() -> None:
        (lib.mm(x, weight.t()).sin().exp() * 2).sum().backward()

    step()
    with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(4):  # the later ones are replayed
            step()
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    spans = {(e["ts"], e["tid"]): e for e in events if e.get("cat") == "cpu_op" and "Sequence number" in e["args"]}
    ends: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.get("cat") == "fwdbwd":
            ends.setdefault(event["id"], {})[event["ph"]] = spans[event["ts"], event["tid"]]
    pairs = sorted([(pair["f"]["ts"], pair["s"], pair["f"]) for pair in ends.values()], key=lambda pair: pair[0])
    assert all(pair[1]["args"]["Sequence number"] == pair[2]["args"]["Sequence number"] for pair in pairs)
    assert all(pair[1]["ts"] + pair[1]["dur"] <= pair[2]["ts"] for pair in pairs)
    names = [(pair[1]["name"], pair[2]["name"]) for pair in pairs]
    count = len(names) // 4
    return [names[count * k : count * (k + 1)] for k in range(4)]


def test_arrows_lead_from_operations_to_the_nodes_that_they_have_made(tg: Any, tmp_path: Path) -> None:
    theirs = _links(torch, tmp_path / "theirs.json")
    assert _links(tg, tmp_path / "ours.json") == theirs
    assert [node for _, node in theirs[0]][:2] == ["SumBackward0", "MulBackward0"]


def test_every_kind_of_call_is_found_again_in_the_worker(tg: Any, tmp_path: Path) -> None:
    """Results that are new, several or views, and operands that are written into, in two threads at a time."""
    from telegrad._ops.functions import function

    zero = function("_foreach_zero_")
    names = ("aten::mul", "aten::unbind", "aten::add_", "aten::_foreach_zero_", "aten::select", "aten::nonzero")

    def first(x: Any, y: Any) -> None:
        for _ in range(5):
            x * y, tg.unbind(x), y.add_(1), zero([x, y]), x[0], y.nonzero()

    def second(x: Any, y: Any) -> None:
        for _ in range(5):
            x * y, tg.unbind(x), y.add_(1), zero([x, y]), x[0], y.nonzero()

    with tg.profiler.profile(with_stack=True) as profile:
        thread = threading.Thread(target=second, args=(tg.ones(2, 2), tg.ones(2, 2)), name="the second")
        thread.start()
        first(tg.ones(2, 2), tg.ones(2, 2))
        thread.join()
        tg.cuda.synchronize()
    for name in names:
        innermost = [event.stack[0] for event in profile.events() if event.name == name and event.cpu_parent is None]
        assert sorted(line.rpartition(": ")[2] for line in innermost) == ["first"] * 5 + ["second"] * 5, name
        assert all(len(event.stack) > 1 for event in profile.events() if event.name == name), name
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls = {(e["ts"], e["tid"]): e for e in events if e.get("cat") == "client_call"}
    begins = [e for e in events if e.get("cat") == "client_to_worker" and e["ph"] == "s"]
    led_from = Counter(calls[e["ts"], e["tid"]]["name"] for e in begins)
    assert [led_from[name] for name in names] == [10] * len(names)
    assert len({e["tid"] for e in begins}) == 2


def test_a_bounded_number_of_the_clients_calls_is_noted(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from telegrad._ops import functions
    from telegrad.profiler import _log

    monkeypatch.setattr(_log, "MOST", 100)
    plain, x = vars(functions)["call"], tg.ones(2)
    with tg.profiler.profile() as profile:
        for _ in range(300):
            x + x
        assert vars(functions)["call"] is plain, "the rest is called as ever"
    assert len(profile.profiler.captured.log.calls) == 100
    assert sum(event.count for event in profile.key_averages() if event.key == "aten::add") == 300


def test_stacks_are_exported(tg: Any, tmp_path: Path) -> None:
    profile = profiled(tg, with_stack=True)
    linear = next(event for event in profile.events() if event.name == "aten::linear")
    assert linear.stack[0].startswith(f"{PROFILED}(") and linear.stack[0].endswith(": train")
    assert linear.stack[1].endswith(": profiled")
    profile.export_stacks(str(tmp_path / "stacks"), "self_cpu_time_total")
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert lines and all(int(line.rpartition(" ")[2]) > 0 for line in lines)
    assert any("train" in line.split(";")[-1] for line in lines)
    averages = profile.key_averages(group_by_stack_n=1)
    assert any(event.stack for event in averages) and "Source Location" in averages.table()
    with pytest.raises(ArgumentError, match="metric should be one of"):
        profile.export_stacks(str(tmp_path / "stacks"), "time")


def test_a_full_trace_says_so(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from telegrad.profiler import _capture

    monkeypatch.setattr(_capture, "LIMIT", 1 << 20)
    x = tg.ones(4)
    with pytest.warns(UserWarning, match="limit of 1 MiB for the trace"), tg.profiler.profile() as profile:
        for _ in range(20_000):
            x.add_(1)
    assert 8_000 < len(profile.events()) < 20_000
    assert x[0].item() == 20_001
    from telegrad._session.current import current_session

    with pytest.raises(ArgumentError, match="expected a limit"):
        current_session().query("start_profile", False, False, 1 << 40)
