"""Sessions in this process, which must leave nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from server.engine.device.cpu_backend import CpuBackend
from server.session.programs import stretches
from server.worker.host import Host
from telegrad._session.catching import prompt_errors

from ..support.captures import simulate_captures
from .driver import Talk


@pytest.fixture(autouse=True)
def _errors_stay_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call wait for its error within ``pytest.raises``: these tests are about errors that come later."""
    monkeypatch.setattr(prompt_errors, "_clause_that_waits", lambda how: None)


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


@pytest.fixture
def gains_by_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sessions on the host look for calls that come again, as those on GPUs do."""
    monkeypatch.setattr(CpuBackend, "gains_by_stretches", True)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often stretches were recorded, begun as one, and taken back."""
    counted: Counter[str] = Counter()
    for name in ("_record", "_begin", "_take_back"):
        plain = getattr(stretches, name)

        def noting(*args: Any, plain: Any = plain, name: str = name) -> Any:
            counted[name] += 1
            return plain(*args)

        monkeypatch.setattr(stretches, name, noting)
    return counted


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def on(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    """The client library, and where it computes."""
    import telegrad

    host = request.getfixturevalue("host" if request.param == "cpu" else "cuda_host")
    with telegrad.connect(in_process=host):
        yield telegrad, request.param


@pytest.fixture(params=["launch by launch", "captured", "noted"])
def captures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the host pretends to capture work, or to note its launches and make them again on other memory."""
    if request.param != "launch by launch":
        simulate_captures(monkeypatch, relocates=request.param == "noted")
