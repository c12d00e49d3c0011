"""What tests of calls that come again share: sessions whose numbers stay as wide, and execution call by call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def past_small_numbers(tg: Any) -> Any:
    """Give out so many numbers of tensors that all that follow take as many bytes."""
    session = tg.ones(1)._session
    while session.new_id() < 1 << 16:
        pass
    return tg


@contextlib.contextmanager
def call_by_call(tg: Any) -> Iterator[None]:
    """Have the session look for nothing that came before."""
    batches = tg.ones(1)._session.transport._session._batches
    before, batches.policy.cooldown = batches.policy.cooldown, 1 << 30
    try:
        yield
    finally:
        batches.policy.cooldown = before
