"""What tests of calls that come again share: execution call by call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def call_by_call(tg: Any) -> Iterator[None]:
    """Have the session look for nothing that came before."""
    batches = tg.ones(1)._session.transport._session._batches
    before, batches.policy.cooldown = batches.policy.cooldown, 1 << 30
    try:
        yield
    finally:
        batches.policy.cooldown = before
