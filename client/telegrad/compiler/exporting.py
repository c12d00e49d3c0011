"""Whether the thread exports a module: what decides for a whole program then differs from what decides for one call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


class _State(threading.local):
    is_active = False


state: Final = _State()


@contextmanager
def exporting() -> Iterator[None]:
    """Tell whoever asks in this block that a module is being exported."""
    state.is_active = True
    try:
        yield
    finally:
        state.is_active = False
