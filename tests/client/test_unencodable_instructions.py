"""An instruction with something that the wire cannot carry is left out, and all others are sent."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from telegrad._session.parts.mark import Part
from telegrad.errors import ArgumentError, ArgumentTypeError

BAD = [(2**70, ArgumentError), (-(2**64), ArgumentError), (object(), ArgumentTypeError), ("\udc80", ArgumentError)]
"""Values, and the errors that tell of them."""


@pytest.fixture
def numbers(rng: np.random.Generator) -> Any:
    return rng.standard_normal(5)


def _spoil_last(session: Any, value: Any) -> None:
    """Put a value that slipped through into the call that was queued last."""
    last = session._pending[-1]
    modes, call = last if type(last) is tuple else (None, last)
    call = replace(call, args=[call.args[0], value])
    session._pending[-1] = call if modes is None else (modes, call)


@pytest.mark.parametrize(("value", "error"), BAD)
@pytest.mark.parametrize("modes", ["default", "no_grad"])
def test_a_call_that_cannot_be_sent_is_told_with_its_line_and_leaves_the_others_be(
    tg: Any, numbers: Any, value: Any, error: type[Exception], modes: str
) -> None:
    x = tg.tensor(numbers)
    session = x._session
    with tg.set_grad_enabled(modes == "default"):
        before = x + 1
        x.roll(1)
        _spoil_last(session, value)
    after = before * 2
    with pytest.raises(error, match=r"^roll: an argument cannot be sent") as caught:
        after.tolist()
    assert f"{__file__}:" in caught.value.site
    assert "in test_a_call_that_cannot_be_sent" in caught.value.site
    np.testing.assert_allclose(after.numpy(), (numbers + 1) * 2)
    np.testing.assert_allclose((after + before).numpy(), (numbers + 1) * 3)


@pytest.mark.parametrize(("value", "error"), BAD)
def test_a_request_that_cannot_be_sent_fails_by_itself(
    tg: Any, numbers: Any, value: Any, error: type[Exception]
) -> None:
    x = tg.tensor(numbers) + 1
    with pytest.raises(error, match=r"^query: an argument cannot be sent"):
        x._session.query("synchronize", value)
    np.testing.assert_allclose((x * 2).numpy(), (numbers + 1) * 2)


def test_what_the_timer_could_not_send_is_raised_by_the_next_call_that_waits(tg: Any, numbers: Any) -> None:
    x = tg.tensor(numbers)
    x.roll(1)
    _spoil_last(x._session, 2**70)
    x.add_(1)
    timer = threading.Thread(target=x._session.flush_quietly)
    timer.start()
    timer.join()
    assert not x._session._pending
    with pytest.raises(ArgumentError, match="roll: an argument cannot be sent"):
        x.tolist()
    np.testing.assert_allclose(x.numpy(), numbers + 1)


def test_where_a_result_that_was_left_out_is_used_the_reason_is_told_first(tg: Any, numbers: Any) -> None:
    x = tg.tensor(numbers)
    rolled = x.roll(1)
    _spoil_last(x._session, 2**70)
    doubled = rolled * 2
    with pytest.raises(ArgumentError, match="roll: an argument cannot be sent"):
        doubled.tolist()
    np.testing.assert_allclose((x * 2).numpy(), numbers * 2)


class _Holder:
    def holds(self) -> bool:
        return True

    def pause(self, why: Any) -> None:
        return None

    def resume(self) -> None:
        return None


def test_a_part_whose_replacement_cannot_be_sent_is_sent_as_it_was_queued(tg: Any, numbers: Any) -> None:
    x = tg.tensor(numbers)
    session = x._session
    session.flush()
    part = Part(0)
    session.begin_part(part, _Holder())
    y = x.roll(1)
    session.end_part(part, lambda queued, first: [replace(queued[-1], args=[queued[-1].args[0], 2**70])])
    assert part.replaced is not None
    np.testing.assert_allclose(y.numpy(), np.roll(numbers, 1))
