"""Whether a function is being traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class _State:
    is_tracing = False


_state = _State()


@contextmanager
def tracing() -> Iterator[None]:
    """Say that a function is being traced within the block."""
    before, _state.is_tracing = _state.is_tracing, True
    try:
        yield
    finally:
        _state.is_tracing = before


def is_fx_tracing() -> bool:
    """Whether a function is being traced."""
    return _state.is_tracing


is_fx_symbolic_tracing = is_fx_tracing
