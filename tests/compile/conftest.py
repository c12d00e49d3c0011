"""What the tests of compiled functions share."""

from __future__ import annotations

import pytest

from server.session.programs import recording


@pytest.fixture(autouse=True)
def _machines_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs recorded however long they take."""
    monkeypatch.setattr(recording, "LONGEST_SECONDS", 1e9)
