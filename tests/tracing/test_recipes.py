"""What PyTorch's recipes ask of a profile: labels of optimizers, memory over time, names of its own tracer."""

from __future__ import annotations

import gzip
import json
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch


def test_what_optimizers_do_is_labelled_with_pytorchs_names(tg: Any) -> None:
    def run(library: Any) -> dict[str, int]:
        class Own(library.optim.SGD):  # type: ignore[misc]
            def step(self, closure: Any = None) -> Any:
                return super().step(closure)

        weight = library.ones(3, requires_grad=True)
        optimizers = library.optim.Adam([weight]), Own([weight], lr=0.1)
        activities = [library.profiler.ProfilerActivity.CPU]
        with library.profiler.profile(activities=activities) as profile:
            for _ in range(3):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                    (weight * 2).sum().backward()
                    optimizer.step()
        rows = {event.key: event.count for event in profile.key_averages() if event.key.startswith("Optimizer")}
        before = profile.key_averages().self_cpu_time_total
        optimizers[0].step()
        assert profile.key_averages().self_cpu_time_total == before
        return rows

    steps, zero_grad = run(tg), tg.optim.Optimizer.zero_grad
    assert steps == run(torch)
    assert not hasattr(zero_grad, "__wrapped__"), "nothing is labelled without a profile"


def test_a_step_that_began_before_the_profile_ends_within_it(tg: Any) -> None:
    weight = tg.ones(3, requires_grad=True)
    optimizer, profile = tg.optim.SGD([weight], lr=0.1), tg.profiler.profile()

    def closure() -> Any:
        profile.start()
        loss = (weight * 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.step()
    profile.stop()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["Optimizer.step#SGD.step"] == 1


def test_memory_over_time_is_written_in_pytorchs_forms(tg: Any, tmp_path: Path) -> None:
    kept = tg.ones(1 << 14)
    with tg.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as profile:
        more = kept + 1
        kept = more * 2
        tg.cuda.synchronize()
        del more
        tg.cuda.synchronize()
    begun, paths = time.time(), [tmp_path / name for name in ("m.json", "m.json.gz", "m.raw.json.gz", "m.html")]
    for path in paths:
        profile.export_memory_timeline(str(path), device="cpu")
    times, sizes = json.loads(paths[0].read_text())
    assert json.loads(gzip.decompress(paths[1].read_bytes())) == [times, sizes]
    assert len(times) == len(sizes) > 2 and all(len(size) == 9 and not any(size[:8]) for size in sizes)
    assert times == sorted(times) and begun - 60 < times[0] / 1e6 < begun
    raw = json.loads(gzip.decompress(paths[2].read_bytes()))
    totals = list(accumulate(change for _, _, change, _ in raw))
    assert raw[0][:2] == [-1, 1] and totals[1:] == [size[8] for size in sizes]
    assert all((action == 2) is (change > 0) for _, action, change, _ in raw[1:])
    assert {action for _, action, *_ in raw[1:]} == {2, 4} and max(totals) >= 3 * (4 << 14)
    assert "Memory of cpu" in paths[3].read_text() and "<polygon" in paths[3].read_text()
    profile.export_memory_timeline(str(paths[0]), device="cuda:3")
    assert json.loads(paths[0].read_text()) == [[], []]
    with tg.profiler.profile() as profile:
        kept.sum()
    with pytest.raises(ValueError, match="profile_memory=True, with_stack=True required for memory profiling"):
        profile.export_memory_timeline(str(paths[0]))


def test_names_of_pytorchs_own_tracer_are_there_for_programs() -> None:
    """Tutorials pass its settings; what they ask for is in every trace."""
    from telegrad.profiler import ProfilerAction, _labels, profile

    settings = _labels._ExperimentalConfig(verbose=True)
    made = profile(experimental_config=settings, custom_trace_id_callback=lambda: "mine")
    assert made.experimental_config is settings and made.get_trace_id() == "mine"
    made.set_custom_trace_id_callback(lambda: "another")
    assert made.get_trace_id() == "another"
    made.set_custom_trace_id_callback(None)
    assert made.get_trace_id() is None
    assert [action.value for action in ProfilerAction] == [0, 1, 2, 3, 4]


def test_a_profile_labels_what_a_loader_does(tg: Any) -> None:
    loader = tg.utils.data.DataLoader(tg.arange(6), batch_size=2)
    plain = type(iter(loader)).__next__
    with tg.profiler.profile() as profile:
        assert len([*loader]) == 3
    labels = [event for event in profile.key_averages() if event.key.startswith("enumerate")]
    assert [(event.key, event.count) for event in labels] == [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 4)
    ]
    assert type(iter(loader)).__next__ is plain
