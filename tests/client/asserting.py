"""A function with an ``assert`` statement as Python compiles it: pytest writes those of test files anew."""

from __future__ import annotations

from typing import Any


def increased(x: Any) -> Any:
    """Return ``x + 1`` where all elements are below 100."""
    assert (x < 100).all(), "too large"
    return x + 1
