"""Programs and calls that were learnt without a profile are what a profile shows, from its first step on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.session.programs.compiled import Variant

from .node_tracer import trace_devices, tracing_nodes

pytestmark = pytest.mark.usefixtures("gains_by_stretches")

RUNS = 24
FUSED = "telegrad::fused_sin_mul_cos_add"


@pytest.fixture
def x(tg: Any, rng: np.random.Generator) -> Any:
    return tg.tensor(rng.standard_normal((6, 6)), dtype=tg.float32)


def _settled(tg: Any, x: Any) -> Any:
    """A compiled function that was run until nothing is learnt any more."""
    function = tg.compile(lambda x: (x.sin() * 2 + x.cos()) @ x)
    for _ in range(RUNS):
        function(x).numpy()
    return function


def _state(x: Any) -> Any:
    return x._session.transport._session.state


def _variants(x: Any) -> list[Variant]:
    return [variant for program in _state(x).programs.values() for variant in program.variants.values()]


def _names(profile: Any) -> list[str]:
    return [event.name for event in profile.events() if not event.name.startswith("telegrad::read")]


def test_a_profile_shows_the_kernels_of_a_settled_program(tg: Any, x: Any) -> None:
    function = _settled(tg, x)
    expected, variants = function(x).numpy(), _variants(x)
    with tg.profiler.profile(record_shapes=True) as profile:
        for _ in range(3):
            np.testing.assert_array_equal(function(x).numpy(), expected)
    assert [id(one) for one in _variants(x)] == [id(one) for one in variants], "nothing is learnt anew"
    names = _names(profile)
    assert names == 3 * ["telegrad::run_program", FUSED, "aten::mm"], names
    runs = [event for event in profile.events() if event.name == "telegrad::run_program"]
    for run in runs:
        kernels = run.cpu_children
        assert [kernel.name for kernel in kernels] == [FUSED, "aten::mm"]
        assert run.time_range.start <= kernels[0].time_range.start <= kernels[0].time_range.end
        assert kernels[0].time_range.end <= kernels[1].time_range.start <= run.time_range.end
    assert [event.input_shapes for event in profile.events() if event.name == "aten::mm"] == 3 * [[[6, 6], [6, 6]]]


def test_programs_that_a_profile_has_learnt_are_kept(tg: Any, x: Any) -> None:
    with tg.profiler.profile():
        function = _settled(tg, x)
    variants = _variants(x)
    assert variants
    function(x).numpy()
    assert [id(one) for one in _variants(x)] == [id(one) for one in variants]


def test_a_graph_that_was_captured_without_a_profile_is_launched_under_it(
    tg: Any, x: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Its nodes were counted, so that each kernel belongs to its step."""
    tracer = tracing_nodes(monkeypatch)
    function = _settled(tg, x)
    captured = tracer.captured
    assert captured
    trace_devices(monkeypatch, tracer)
    with tg.profiler.profile() as profile:
        for _ in range(3):
            function(x).numpy()
    assert tracer.captured == captured, "nothing is captured anew"
    spans = profile.profiler.captured.timeline.spans
    kernels = [(span.name, kernel.name) for span in spans for kernel in span.kernels if "copy" not in span.name]
    assert kernels == 3 * [(FUSED, "node 0"), ("aten::mm", "node 1")]


def test_where_memory_is_noted_each_kernel_of_a_program_has_its_own(tg: Any, x: Any) -> None:
    function = _settled(tg, x)
    with tg.profiler.profile(profile_memory=True) as profile:
        kept = [function(x) for _ in range(2)]
        tg.cuda.synchronize()
    usage = [event.self_cpu_memory_usage for event in profile.events() if event.name in (FUSED, "aten::mm")]
    assert len(kept) == 2 and len(usage) == 4 and usage[0] > 0 and usage[2] > 0


def test_calls_that_were_learnt_without_a_profile_are_executed_as_one_under_it(tg: Any, x: Any) -> None:
    """What a profile says of them is found out once, by executing them call by call."""

    def calls() -> Any:
        y = x
        for _ in range(12):
            y = y.sin() * 1.5
        return y.numpy()

    for _ in range(RUNS):
        expected = calls()
    stretches = x._session.transport._session._batches.patterns
    assert stretches
    with tg.profiler.profile() as profile:
        for _ in range(5):
            np.testing.assert_array_equal(calls(), expected)
    names = _names(profile)
    assert names.count("aten::sin") == names.count("aten::mul") == 60
    assert names.count("telegrad::stretch") >= 3
    assert names.count("telegrad::end_of_stretch") == 1, "the first one only"
    assert x._session.transport._session._batches.patterns == stretches


def test_a_pass_that_was_fused_is_fused_under_a_profile(tg: Any, x: Any) -> None:
    weight = x.clone().requires_grad_()
    function = tg.compile(lambda w: (w.sin() * 2).exp().sum())

    def step() -> Any:
        weight.grad = None
        function(weight).backward()
        return weight.grad.numpy()

    for _ in range(RUNS):
        expected = step()
    with tg.profiler.profile() as profile:
        np.testing.assert_array_equal(step(), expected)
    fused = [event.name for event in profile.events() if event.name.startswith("telegrad::fused_")]
    assert len(fused) == 2 and "cos" in fused[1], fused
    with tg.profiler.profile() as profile:
        step()
    assert [event.name for event in profile.events() if event.name.startswith("telegrad::fused_")] == fused
