"""Names of PyTorch's profiler that tools look at, beside PyTorch's own on the same program."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch


def _profile(lib: Any) -> Any:
    x = lib.ones(4, 5, requires_grad=True)
    options = {"record_shapes": True, "profile_memory": True, "with_flops": True}  # PyTorch's stacks spoil names
    with lib.profiler.profile(**options) as profile, lib.profiler.record_function("part"):
        (x @ x.t()).sum().backward()
    return profile


def _names(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.fixture
def theirs() -> Any:
    return _profile(torch)


def test_events_and_averages_have_all_attributes_of_pytorchs(tg: Any, theirs: Any) -> None:
    ours = _profile(tg)
    for mine, other in ((ours.events(), theirs.events()), (ours.key_averages(), theirs.key_averages())):
        assert _names(mine[0]) >= _names(other[0])
        assert _names(mine) >= _names(other)
    mine, other = (
        next(event for event in profile.events() if event.name == "aten::matmul") for profile in (ours, theirs)
    )
    compared = {name for name in _names(other) - {"metadata_json"} if "cuda" not in name}  # those are deprecated
    kinds = {name: type(getattr(other, name)) for name in compared if not callable(getattr(other, name))}
    different = {name for name, kind in kinds.items() if kind is not type(getattr(mine, name))}
    assert different <= {
        "cpu_parent", "device_type", "scope", "fwd_thread", "flops", "use_device", "event_metadata", "time_range",
        "device_time", "device_time_total", "self_device_time_total",
    }  # fmt: skip
    (part,) = [event for event in ours.events() if event.name == "part"]
    assert (part.activity_type, mine.activity_type, mine.external_id) == ("user_annotation", "cpu_op", mine.id)
    for name in ("input_shapes", "structured_input_shapes", "structured_input_strides", "input_dtypes"):
        assert getattr(mine, name) == getattr(other, name)


def test_tables_are_sorted_by_what_pytorch_sorts_them_by(tg: Any, theirs: Any) -> None:
    ours = _profile(tg).key_averages()
    for device in ("cpu", "cuda", "device", "xpu", "privateuse1"):
        for name in (f"{device}_time", f"{device}_time_total", f"self_{device}_memory_usage"):
            assert theirs.key_averages().table(sort_by=name) and ours.table(sort_by=name)


def test_traces_say_what_was_to_be_recorded(tg: Any, theirs: Any, tmp_path: Path) -> None:
    documents = []
    for number, profile in enumerate((_profile(tg), theirs)):
        profile.export_chrome_trace(str(tmp_path / f"{number}.json"))
        documents.append(json.loads((tmp_path / f"{number}.json").read_text()))
    ours, others = documents
    for name in ("record_shapes", "profile_memory", "with_flops"):
        assert ours[name] == others[name] == 1
    assert "with_stack" not in ours and "with_stack" not in others
    assert ours["host_name"] == others["host_name"] and len(ours["trace_id"]) == len(others["trace_id"])


def test_steps_are_counted_as_pytorch_counts_them(tg: Any, seed: int) -> None:
    rng = random.Random(seed)
    ours, others = tg.autograd.profiler.KinetoStepTracker, torch.autograd.profiler.KinetoStepTracker
    begins = ours.current_step(), others.current_step()
    for _ in range(200):
        name, kind = rng.choice("abc"), rng.choice(("init_step_count", "erase_step_count", *["increment_step"] * 4))
        mine, other = getattr(ours, kind)(name), getattr(others, kind)(name)
        if kind == "increment_step":
            mine, other = mine - begins[0], other - begins[1]
        assert mine == other
        assert ours.current_step() - begins[0] == others.current_step() - begins[1]
    for name in "abc":
        assert ours.erase_step_count(name) == others.erase_step_count(name)


def test_it_is_told_whether_something_is_profiled(tg: Any) -> None:
    for lib in (tg, torch):
        told = []
        for _ in range(2):
            told.append((lib.autograd.profiler._is_profiler_enabled, lib.autograd._profiler_enabled()))
            with lib.profiler.profile():
                told.append((lib.autograd.profiler._is_profiler_enabled, lib.autograd._profiler_enabled()))
        assert told == [(False, False), (True, True)] * 2
    with pytest.raises(AttributeError, match="_no_such_name"):
        _ = tg.autograd.profiler._no_such_name


def test_marks_for_other_profilers_are_accepted(tg: Any) -> None:
    assert not tg.profiler.itt.is_available()
    with tg.profiler.itt.range("step {}", 3):
        tg.profiler.itt.range_push("inner")
        tg.profiler.itt.mark("here")
        tg.profiler.itt.range_pop()
    for emit in (tg.autograd.profiler.emit_nvtx, tg.autograd.profiler.emit_itt):
        with emit(enabled=False):
            assert tg.ones(1).item() == 1


def test_the_older_profile_shows_its_events(tg: Any) -> None:
    profile = tg.autograd.profiler.profile()
    assert repr(profile) == "<unfinished telegrad.autograd.profile>"
    with profile:
        tg.ones(2).sin()
    assert "aten::sin" in repr(profile) and repr(profile) == repr(profile.function_events)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda p: p.profile().events(),
        lambda p: p.profile().export_chrome_trace("never written"),
        lambda p: p.profile(activities=[]),
        lambda p: p.profile(activities=["cpu"]),
        lambda p: p.schedule(wait=1, warmup=1, active=0),
        lambda p: p.schedule(wait=-1, warmup=1, active=1),
    ],
)
def test_what_pytorch_asserts_is_an_assertion_error(tg: Any, misuse: Any) -> None:
    for lib in (tg, torch):
        with pytest.raises(AssertionError):
            misuse(lib.profiler)


def test_stacks_are_exported_where_they_were_recorded(tg: Any, tmp_path: Any) -> None:
    for lib in (tg, torch):
        with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU]) as profile:
            lib.ones(2).sin()
        with pytest.raises(AssertionError, match="requires with_stack=True"):
            profile.export_stacks(str(tmp_path / "stacks"), "self_cpu_time_total")


def test_a_recording_is_begun_and_ended_by_the_program_itself(tg: Any) -> None:
    for lib in (tg, torch):
        recording = lib.profiler._KinetoProfile(activities=[lib.profiler.ProfilerActivity.CPU], record_shapes=True)
        recording.prepare_trace()
        recording.start_trace()
        lib.ones(2, 3).sin()
        recording.stop_trace()
        found = [event.input_shapes for event in recording.events() if event.name == "aten::sin"]
        assert found == [[[2, 3]]]
        assert isinstance(lib.profiler.profile(), lib.profiler._KinetoProfile)
        assert "aten::sin" in {event.name for event in recording.profiler.function_events}
