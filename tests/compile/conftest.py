"""What the tests of compiled functions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from server.engine.cuda.runtime.background import background_compiler
from server.engine.cuda.runtime.launch import architecture
from server.session.programs import recording


@pytest.fixture(autouse=True)
def _no_compiler_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """End what compiles beside this process, for sessions that live on: it looks up only when somebody asks."""
    yield
    if request.node.get_closest_marker("gpu"):
        background_compiler(architecture(0)).stop()


@pytest.fixture(autouse=True)
def _machines_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs recorded however long they take."""
    monkeypatch.setattr(recording, "LONGEST_SECONDS", 1e9)
