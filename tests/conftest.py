"""Fixtures of all tests: sessions over each transport, a seed that is printed, and the rule that nothing is left behind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A fresh random seed, printed where the test fails."""
    value = random.SystemRandom().randrange(2**32)
    print(f"seed = {value}")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A NumPy generator of that seed."""
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def host() -> Any:
    """An engine in this process."""
    from server.host import Host

    return Host(["cpu"])


@pytest.fixture
def tg(host: Any) -> Iterator[Any]:
    """The client library on a session of its own, driven in this process."""
    import telegrad

    with telegrad.connect(in_process=host) as connection:
        yield telegrad
        number = next(n for n, s in host.sessions.items() if s is connection.session.transport._session)
    leftover = {str(d): b.allocator.allocated_bytes(number) for d, b in host.backends.items()}
    assert not any(leftover.values()), f"the session left {leftover} bytes behind"
