"""Ends work that takes too long, where the host does it step by step: such loops look at ``requested`` in every step.

    if cancellation.requested:
        cancellation.stop()

Somebody else sets it, in a signal handler, and says what to raise.
"""

from __future__ import annotations

from collections.abc import Callable

requested = False
"""Whether somebody wants the work that is going on to end."""
_raise_if_meant: Callable[[], None] = lambda: None


def stop() -> None:
    """Raise, if it is the present work that is meant; it may have been work that has ended since."""
    global requested
    requested = False
    _raise_if_meant()


def request(raise_if_meant: Callable[[], None]) -> None:
    """Have the next step call this, which raises what ends the work. A signal handler may call it."""
    global requested, _raise_if_meant
    _raise_if_meant = raise_if_meant
    requested = True
