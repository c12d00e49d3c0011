"""Profiles of programs: rows and columns beside PyTorch's, schedules, waits."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from telegrad_protocol.errors import ArgumentError, AutogradError, IndexOutOfRangeError

from .profiled import profiled, train


def test_rows_have_pytorchs_names_counts_shapes_and_flops(tg: Any) -> None:
    train(tg, 3)
    ours = profiled(tg, record_shapes=True, with_flops=True)
    theirs = profiled(torch, record_shapes=True, with_flops=True)
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
    ours, theirs = profiled(tg), profiled(torch)
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
    ours = profiled(tg, **options).key_averages(group_by_input_shape="record_shapes" in options)
    theirs = profiled(torch, **options).key_averages(group_by_input_shape="record_shapes" in options)
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

    profiled(tg, 8, schedule=tg.profiler.schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready)
    assert seen == [(4, ["ProfilerStep#2", "ProfilerStep#3"]), (8, ["ProfilerStep#6", "ProfilerStep#7"])]
    for steps in range(12):
        for options in ({"wait": 1, "warmup": 1, "active": 2, "repeat": 1}, {"wait": 0, "warmup": 2, "active": 1},
                        {"wait": 2, "warmup": 0, "active": 1, "skip_first": 3, "skip_first_wait": 1}):  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about steps without warm-up
                their = torch.profiler.schedule(**options)(steps)
            assert tg.profiler.schedule(**options)(steps).name == their.name
    handler = tg.profiler.tensorboard_trace_handler(str(tmp_path), "w", use_gzip=True)
    profiled(tg, 3, schedule=tg.profiler.schedule(wait=0, warmup=0, active=3, repeat=1), on_trace_ready=handler)
    (written,) = tmp_path.iterdir()
    assert written.name.startswith("w.") and written.name.endswith(".pt.trace.json.gz")
    with gzip.open(written, "rt") as file:
        assert json.load(file)["traceEvents"]


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


def test_the_older_profiler(tg: Any) -> None:
    with pytest.warns(UserWarning, match="no GPU"), tg.autograd.profiler.profile(use_cuda=True) as profile:
        tg.square(tg.ones(4))
    assert "aten::square" in profile.key_averages().table(sort_by="cuda_time_total", row_limit=10)
    assert profile.function_events and profile.total_average().count and profile.self_cpu_time_total > 0
    with tg.autograd.profiler.profile(enabled=False):
        tg.ones(2)

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
