"""A session on simulated GPUs whose driver compiles and writes down what it would launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kernel_driver import NotedDriver
from tests.support.node import SimulatedHost


@pytest.fixture(scope="module")
def simulated() -> SimulatedHost:
    """Two simulated GPUs."""
    return SimulatedHost()


@pytest.fixture
def tg(simulated: SimulatedHost) -> Iterator[Any]:
    """The client on a session there."""
    import telegrad

    with telegrad.connect(in_process=simulated):
        yield telegrad


@pytest.fixture
def driver(simulated: SimulatedHost) -> NotedDriver:
    """The driver of its first GPU, which has launched nothing yet."""
    noted: Any = simulated.backends[simulated.default_device].kernel_driver()
    noted.launched.clear()
    return noted  # type: ignore[no-any-return]
