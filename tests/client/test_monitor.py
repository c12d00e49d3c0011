"""``monitor``: events reach the handlers that are registered, as in PyTorch."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
import torch.monitor

from telegrad import monitor

_WHEN = datetime(2026, 3, 4, 5, 6, 7, 890123)
both = pytest.mark.parametrize("lib", [monitor, torch.monitor], ids=["telegrad", "torch"])


@both
def test_events_hold_texts_and_numbers(lib: Any) -> None:
    event = lib.Event(name="step", timestamp=_WHEN, data={"loss": 0.5, "epoch": 3, "phase": "train", "last": True})
    assert (event.name, event.timestamp) == ("step", _WHEN)
    assert event.data == {"loss": 0.5, "epoch": 3, "phase": "train", "last": 1.0}
    assert {key: type(value) for key, value in event.data.items()} == {
        "loss": float, "epoch": int, "phase": str, "last": float,
    }  # fmt: skip
    for given in [("step", 3, {}), (3, _WHEN, {}), ("step", _WHEN, {"x": [1]}), ("step", _WHEN, {1: 2})]:
        with pytest.raises(TypeError):
            lib.Event(*given)


@both
def test_handlers_are_called_in_order_until_they_are_unregistered(lib: Any) -> None:
    event, seen = lib.Event("step", _WHEN, {}), []
    handles = [lib.register_event_handler(lambda given, n=n: seen.append((n, given is event))) for n in range(2)]
    try:
        lib.log_event(event)
        assert seen == [(0, True), (1, True)]
    finally:
        lib.unregister_event_handler(handles[0])
    lib.log_event(event)
    lib.unregister_event_handler(handles[1])
    lib.log_event(event)
    assert seen == [(0, True), (1, True), (1, True)]
    with pytest.raises(TypeError):
        lib.log_event("step")


@both
def test_what_a_handler_raises_reaches_who_reports(lib: Any) -> None:
    def fail(event: Any) -> None:
        raise KeyError("from the handler")

    seen: list[Any] = []
    handles = [lib.register_event_handler(callback) for callback in (fail, seen.append)]
    try:
        with pytest.raises(KeyError, match="from the handler"):
            lib.log_event(lib.Event("step", _WHEN, {}))
        assert seen == []
    finally:
        for handle in handles:
            lib.unregister_event_handler(handle)


def test_a_handler_that_is_not_registered_can_be_unregistered() -> None:
    handle = monitor.register_event_handler(print)
    monitor.unregister_event_handler(handle)
    monitor.unregister_event_handler(handle)
