"""Profiles of programs: rows and columns beside PyTorch's, schedules, traces that PyTorch's tools read, waits."""

from __future__ import annotations

import gzip
import json
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from telegrad_protocol.errors import ArgumentError, AutogradError, IndexOutOfRangeError, NotSupportedError

FIELDS = {"ph", "name", "pid", "tid", "ts"}


def _train(lib: Any, steps: int, profile: Any = None) -> None:
    weight = lib.ones(16, 8, requires_grad=True)
    x = lib.ones(4, 8)
    for _ in range(steps):
        with lib.profiler.record_function("forward"):
            loss = lib.nn.functional.linear(x, weight).relu().sum()
        loss.backward()
        weight.grad = None
        if profile is not None:
            profile.step()


def _profile(lib: Any, steps: int = 2, **options: Any) -> Any:
    with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU], **options) as profile:
        _train(lib, steps, profile if options.get("schedule") else None)
    return profile


def test_rows_have_pytorchs_names_counts_shapes_and_flops(tg: Any) -> None:
    _train(tg, 3)
    ours = _profile(tg, record_shapes=True, with_flops=True)
    theirs = _profile(torch, record_shapes=True, with_flops=True)
    names = ("aten::linear", "aten::relu", "aten::sum", "aten::mm", "forward", "SumBackward0", "ReluBackward0")
    rows = {event.key: event for event in ours.key_averages()}
    expected = {event.key: event for event in theirs.key_averages()}
    for name in names[:3] + names[4:]:
        assert rows[name].count == expected[name].count == 2, name
    assert rows["aten::linear"].flops == sum(e.flops for e in theirs.key_averages() if e.key == "aten::mm") // 2
    assert rows["aten::mm"].count >= 2, "operations of replayed backward passes are rows too"
    by_shape = {(e.key, str(e.input_shapes)) for e in ours.key_averages(group_by_input_shape=True)}
    assert ("aten::linear", "[[4, 8], [16, 8], []]") in by_shape
    assert ("aten::relu", "[[4, 16]]") in by_shape
    forward = next(event for event in ours.events() if event.name == "forward")
    assert {child.name for child in forward.cpu_children} == {"aten::linear", "aten::relu", "aten::sum"}
    assert forward.self_cpu_time_total == pytest.approx(
        forward.cpu_time_total - sum(child.cpu_time_total for child in forward.cpu_children)
    )
    node = next(event for event in ours.events() if event.name == "LinearBackward0")
    assert node.scope == 1 and node.cpu_children and node.cpu_parent.name == "telegrad::backward"
    total = ours.events().total_average()
    assert total.key == "Total" and total.count == len(ours.events())


def test_events_and_averages_have_pytorchs_attributes(tg: Any) -> None:
    ours, theirs = _profile(tg), _profile(torch)
    later = {
        "activity_type", "event_metadata", "external_id", "extra_meta", "flow_id", "flow_start", "flow_type",
        "input_dtypes", "is_python_function", "linked_correlation_id", "metadata_json", "python_id", "python_module_id",
        "python_parent_id", "structured_input_shapes", "structured_input_strides",
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for mine, their in ((ours.events()[0], theirs.events()[0]), (ours.key_averages()[0], theirs.key_averages()[0])):
            wanted = {name for name in dir(their) if not name.startswith("_")} - later
            assert wanted <= set(dir(mine)), wanted - set(dir(mine))
        lists = {name for name in dir(theirs.events()) if not name.startswith("_")}
        assert lists <= set(dir(ours.events()))
        methods = {name for name in dir(theirs) if not name.startswith("_")}
        unknown = methods - set(dir(ours))
        assert unknown <= {
            "prepare_trace", "start_trace", "stop_trace", "set_custom_trace_id_callback", "action_map", "use_device",
            "has_cudagraphs", "mem_tl", "record_steps", "step_rec_fn", "post_processing_timeout_s", "activity_filters",
            "custom_trace_id_callback", "custom_profiler_config", "preset_metadata",
        }, unknown  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}, {"profile_memory": True}], ids=str)
def test_tables_have_pytorchs_columns(tg: Any, options: Any) -> None:
    ours = _profile(tg, **options).key_averages(group_by_input_shape="record_shapes" in options)
    theirs = _profile(torch, **options).key_averages(group_by_input_shape="record_shapes" in options)
    for keywords in ({"sort_by": "self_cpu_time_total"}, {"row_limit": 3, "max_name_column_width": 9}, {"header": "H"}):
        mine, their = ours.table(**keywords).splitlines(), theirs.table(**keywords).splitlines()
        titles = [next(line for line in lines if "# of Calls" in line).split("  ") for lines in (mine, their)]
        assert [t.strip() for t in titles[0] if t.strip()] == [t.strip() for t in titles[1] if t.strip()]
        assert ("H" in mine) is ("H" in their) is ("header" in keywords)
        assert (
            mine[-1].startswith("Self CPU time total: ") and mine[-1].partition(":")[0] == their[-1].partition(":")[0]
        )
    for key in ("cpu_time", "cuda_time", "cpu_time_total", "cuda_time_total", "self_cuda_time_total", "count",
                "device_time_total", "cpu_memory_usage", "cuda_memory_usage", "self_cuda_memory_usage"):  # fmt: skip
        assert ours.table(sort_by=key, row_limit=-1)
    order = [e.cpu_time_total for e in sorted(ours, key=lambda e: -e.cpu_time_total)]
    rows = [line for line in ours.table(sort_by="cpu_time_total").splitlines() if "::" in line]
    assert len(order) >= len(rows) > 3
    assert "ms" in ours.table(time_unit="ms").splitlines()[-1]
    with pytest.raises(AttributeError, match="there are cpu_time"):
        ours.table(sort_by="nothing")
    with pytest.raises(ArgumentError, match="time_unit"):
        ours.table(time_unit="h")


def test_memory_is_shown_with_the_operation_that_allocates_it(tg: Any) -> None:
    x = tg.ones(256, 256)
    with tg.profiler.profile(profile_memory=True) as profile:
        y = x + x
        del y
        x * 2  # frees the sum before it runs
    rows = {event.key: event for event in profile.key_averages()}
    assert rows["aten::add"].cpu_memory_usage == rows["aten::add"].self_cpu_memory_usage == 4 << 16
    assert rows["aten::mul"].cpu_memory_usage == 0
    assert "CPU Mem" in profile.key_averages().table()


@pytest.mark.parametrize("accumulates", [False, True])
def test_cycles_of_a_schedule_accumulate_where_that_is_wanted(tg: Any, accumulates: bool) -> None:
    plan, counts = tg.profiler.schedule(wait=0, warmup=1, active=1, repeat=3), []

    def ready(profile: Any) -> None:
        counts.append(sum(event.count for event in profile.key_averages() if event.key == "aten::add"))

    with tg.profiler.profile(schedule=plan, acc_events=accumulates, on_trace_ready=ready) as profile:
        for _ in range(6):
            _ = tg.ones(2) + 1
            profile.step()
    assert counts == ([1, 2, 3] if accumulates else [1, 1, 1])


def test_schedules_choose_the_steps(tg: Any, tmp_path: Path) -> None:
    seen: list[tuple[int, list[str]]] = []

    def ready(profile: Any) -> None:
        steps = [event.trace_name for event in profile.events() if event.is_user_annotation and "#" in event.trace_name]
        seen.append((profile.step_num, steps))

    _profile(tg, 8, schedule=tg.profiler.schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready)
    assert seen == [(4, ["ProfilerStep#2", "ProfilerStep#3"]), (8, ["ProfilerStep#6", "ProfilerStep#7"])]
    for steps in range(12):
        for options in ({"wait": 1, "warmup": 1, "active": 2, "repeat": 1}, {"wait": 0, "warmup": 2, "active": 1},
                        {"wait": 2, "warmup": 0, "active": 1, "skip_first": 3, "skip_first_wait": 1}):  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about steps without warm-up
                their = torch.profiler.schedule(**options)(steps)
            assert tg.profiler.schedule(**options)(steps).name == their.name
    handler = tg.profiler.tensorboard_trace_handler(str(tmp_path), "w", use_gzip=True)
    _profile(tg, 3, schedule=tg.profiler.schedule(wait=0, warmup=0, active=3, repeat=1), on_trace_ready=handler)
    (written,) = tmp_path.iterdir()
    assert written.name.startswith("w.") and written.name.endswith(".pt.trace.json.gz")
    with gzip.open(written, "rt") as file:
        assert json.load(file)["traceEvents"]


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


def test_steps_that_are_waited_or_warmed_up_for_are_executed_as_without_a_profile(tg: Any) -> None:
    """Neither the client's call nor the session has anything of a profile then."""
    x = tg.ones(2)
    state = x._session.transport._session.state
    noted = []
    with tg.profiler.profile(schedule=tg.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)) as profile:
        for _ in range(6):
            (x + x).sum().item()
            noted.append((_notes_calls(), state.context.profiler is not None))
            assert bool(state.plain_handlers) is bool("send_batch" in vars(x._session.transport)) is noted[-1][0]
            profile.step()
    assert noted == 2 * [(False, False), (False, False), (True, True)]


def _notes_calls() -> bool:
    """Whether calls are noted, in C or by the function of Python that stands in the place of the ordinary one."""
    from telegrad._native.binding import native
    from telegrad._ops import functions

    if native is None:
        return hasattr(functions.call, "plain")
    is_free = native.begin_notes(0, False, print)
    if is_free:
        native.end_notes()
    return not is_free


def test_the_trace_has_client_wire_and_worker_on_one_clock(tg: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    chosen = tg.profiler.schedule(wait=0, warmup=0, active=2, repeat=1)
    with tg.profiler.profile(with_stack=True, schedule=chosen) as profile:
        _train(tg, 2, profile)
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
        assert f"{__file__}(" in operation["args"]["Call stack"]
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
    profile = _profile(tg, with_stack=True)
    linear = next(event for event in profile.events() if event.name == "aten::linear")
    assert linear.stack[0].startswith(f"{__file__}(") and linear.stack[0].endswith(": _train")
    assert linear.stack[1].endswith(": _profile")
    profile.export_stacks(str(tmp_path / "stacks"), "self_cpu_time_total")
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert lines and all(int(line.rpartition(" ")[2]) > 0 for line in lines)
    assert any("_train" in line.split(";")[-1] for line in lines)
    averages = profile.key_averages(group_by_stack_n=1)
    assert any(event.stack for event in averages) and "Source Location" in averages.table()
    with pytest.raises(ArgumentError, match="metric should be one of"):
        profile.export_stacks(str(tmp_path / "stacks"), "time")


def test_the_older_profiler(tg: Any) -> None:
    with pytest.warns(UserWarning, match="no GPU"), tg.autograd.profiler.profile(use_cuda=True) as profile:
        tg.square(tg.ones(4))
    assert "aten::square" in profile.key_averages().table(sort_by="cuda_time_total", row_limit=10)
    assert profile.function_events and profile.total_average().count and profile.self_cpu_time_total > 0
    with tg.autograd.profiler.profile(enabled=False):
        tg.ones(2)
    for refused in (tg.autograd.profiler.emit_nvtx, tg.autograd.profiler.emit_itt):
        with pytest.raises(NotSupportedError, match=r"profiler.profile\(\)"):
            refused()

    @tg.autograd.profiler.record_function("labelled")
    def twice(x: Any) -> Any:
        return x + x

    with tg.autograd.profiler.profile() as profile:
        twice(tg.ones(2))
    assert "labelled" in {event.name for event in profile.function_events}


def test_waits_are_counted_by_line(tg: Any) -> None:
    x = tg.ones(64)
    with tg.profiler.round_trips() as trips:
        for _ in range(3):
            x.sum().item()
        x.nonzero()
        tg.cuda.synchronize()
    x.sum().item()
    found = {(trip.function, trip.reason): trip for trip in trips}
    read = found["test_waits_are_counted_by_line", "the elements of a tensor are read"]
    assert read.waits == 3 and read.file == __file__ and read.longest <= read.total
    assert read.mean * 3 == pytest.approx(read.total)
    assert found["test_waits_are_counted_by_line", "the shape of a result depends on data"].waits == 1
    assert len(trips) == 5 and trips.total > 0
    assert "item" not in trips.table() and f"{__file__}:{read.line}" in str(trips)
    with tg.profiler.profile() as profile:
        x.sum().item()
    assert len(profile.round_trips()) == 1, "the profiler's own round trips are not counted"
    with tg.profiler.round_trips() as none:
        x + x
    assert not none and "no line" in none.table()


def test_nothing_is_left_of_a_profile(tg: Any) -> None:
    from telegrad._ops import functions
    from telegrad._session.current import current_session

    plain, session = vars(functions)["call"], current_session()
    before = set(vars(session)), set(vars(session.transport))
    with tg.profiler.profile():
        with pytest.raises(AutogradError, match="another profile"), tg.profiler.profile():
            pass
        tg.ones(2).add_(1)
    assert vars(functions)["call"] is plain
    assert (set(vars(session)), set(vars(session.transport))) == before
    for name in ("events", "key_averages"):
        with pytest.raises(AutogradError, match="nothing is recorded yet"):
            getattr(tg.profiler.profile(), name)()
    with pytest.raises(IndexOutOfRangeError), tg.profiler.profile():
        tg.ones(3)[tg.tensor([7])]
    with tg.profiler.profile() as profile:  # the one that met an error has ended
        tg.ones(2).mul_(3)
    assert "aten::mul_" in {event.name for event in profile.events()}


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
