"""Random calls that make tensors of none, for tests that compare two ways of making calls."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any


def made(tg: Any, rng: random.Random, number: float) -> Any:
    """Make a tensor of some type on some device, which a block around the call may choose; some calls raise."""
    sizes, dtype = rng.choice(((2, 3), (3,), ())), rng.choice((None, tg.float64, tg.int64))
    given = {"device": rng.choice((None, "cpu", "meta", tg.device("cpu")))} if rng.random() < 0.7 else {}
    place = tg.device(rng.choice(("cpu", "meta"))) if rng.random() < 0.2 else nullcontext()
    with place:
        return rng.choice((
            lambda: tg.zeros(sizes, dtype=dtype, **given), lambda: tg.full(sizes, number, dtype=dtype, **given),
            lambda: tg.arange(rng.randrange(-1, 5), **given), lambda: tg.rand(sizes, dtype=dtype, **given),
            lambda: tg.randn(*sizes, 2, **given), lambda: tg.eye(3, dtype=dtype, **given),
            lambda: tg.linspace(0, number, 3, **given), lambda: tg.ones(*sizes, 1), lambda: tg.randint(9, sizes),
            lambda: tg.zeros(3, requires_grad=True, **given), lambda: tg.randperm(rng.randrange(4), **given),
        ))()  # fmt: skip
