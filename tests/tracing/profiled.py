"""A small training, and a profile of it, by either library."""

from __future__ import annotations

from typing import Any


def train(lib: Any, steps: int, profile: Any = None) -> None:
    """Do some steps of a training; ``profile`` is told of each."""
    weight = lib.ones(16, 8, requires_grad=True)
    x = lib.ones(4, 8)
    for _ in range(steps):
        with lib.profiler.record_function("forward"):
            loss = lib.nn.functional.linear(x, weight).relu().sum()
        loss.backward()
        weight.grad = None
        if profile is not None:
            profile.step()


def profiled(lib: Any, steps: int = 2, **options: Any) -> Any:
    """Return a profile of the CPU of some steps."""
    with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU], **options) as profile:
        train(lib, steps, profile if options.get("schedule") else None)
    return profile
