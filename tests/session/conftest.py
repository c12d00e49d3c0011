"""Sessions in this process, which must leave nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from server.worker.host import Host

from .driver import Talk


@pytest.fixture
def open_talk(host: Host) -> Iterator[Callable[..., Talk]]:
    opened: list[Talk] = []

    def open_one(**options: Any) -> Talk:
        opened.append(Talk(host, **options))
        return opened[-1]

    yield open_one
    for each in opened:
        each.session.close()
        assert each.held() == 0


@pytest.fixture
def talk(open_talk: Callable[..., Talk]) -> Talk:
    return open_talk()
