"""Ends work that takes too long, where the host does it step by step: such loops look at ``requested`` in every step.

    if cancellation.requested:
        cancellation.stop()

Somebody else sets it, in a signal handler, and says what to raise. Loops between whose steps nothing is half done call
``pause`` instead of ``stop``: other sessions' work may be done there, too.
"""

from __future__ import annotations

from collections.abc import Callable

requested = False
"""Whether somebody wants the work that is going on to end."""
_raise_if_meant: Callable[[], None] | None = None
_give_way: Callable[[], None] | None = None


def stop() -> None:
    """Raise, if it is the present work that is meant; it may have been work that has ended since."""
    global requested, _raise_if_meant
    requested = False
    raise_if_meant, _raise_if_meant = _raise_if_meant, None
    if raise_if_meant is not None:
        raise_if_meant()


def request(raise_if_meant: Callable[[], None]) -> None:
    """Have the next step call this, which raises what ends the work. A signal handler may call it."""
    global requested, _raise_if_meant
    _raise_if_meant = raise_if_meant
    requested = True


def pause() -> None:
    """Do as ``stop``, and let other sessions work if that was asked for."""
    global _give_way
    stop()
    give_way, _give_way = _give_way, None
    if give_way is not None:
        give_way()


def request_pause(give_way: Callable[[], None]) -> None:
    """Have the next step in which other work may be done call this. A signal handler may call it."""
    global requested, _give_way
    _give_way = give_way
    requested = True
