"""What profilers refuse, in PyTorch's words, with the remedy behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

REFUSED: dict[str, Callable[[Any], Any]] = {
    "a negative wait": lambda t: t.profiler.schedule(wait=-1, warmup=0, active=1),
    "no active step": lambda t: t.profiler.schedule(wait=2, warmup=1, active=0, repeat=3),
    "a negative step": lambda t: t.profiler.schedule(wait=0, warmup=1, active=1)(-4),
    "no activities": lambda t: t.profiler.profile(activities=[]),
    "a text for activities": lambda t: t.profiler.profile(activities="cpu"),
    "averages of nothing": lambda t: cpu_profile(t).key_averages(),
    "events of nothing": lambda t: cpu_profile(t).events(),
    "a trace of nothing": lambda t: cpu_profile(t).export_chrome_trace("none.json"),
    "an end without a beginning": lambda t: cpu_profile(t).stop(),
    "a folder that cannot be made": lambda t: t.profiler.tensorboard_trace_handler("/proc/none/x")(None),
}


def cpu_profile(t: Any) -> Any:
    return t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU])


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_profilers_refuse_in_pytorchs_words(tg: Any, refused: Callable[[Any], Any]) -> None:
    with pytest.raises((AssertionError, RuntimeError)) as theirs:
        refused(torch)
    with pytest.raises(theirs.type) as ours:
        refused(tg)
    assert str(ours.value).startswith(str(theirs.value))


def test_texts_of_events_are_pytorchs(tg: Any) -> None:
    import torch.autograd.profiler_util as theirs

    from telegrad.autograd import profiler as ours

    for time in (0.0, 0.5, 12.345, 999.9996, 1234.5, 1234567.8):
        assert ours._format_time(time) == theirs._format_time(time)
    for count in (0, 100, 2048, -3 << 20, 5 << 30):
        assert ours._format_memory(count) == theirs._format_memory(count)
    assert ours._format_time_share(1, 4) == theirs._format_time_share(1, 4)
    assert repr(tg.autograd.profiler.profile()).split()[0] == repr(torch.autograd.profiler.profile()).split()[0]
