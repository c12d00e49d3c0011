"""Which sessions somebody watches, so that the program's labels are told to their servers."""

from __future__ import annotations

from typing import Any, Final

watched: Final[dict[Any, Watched]] = {}
"""Sessions that are watched, as far as their servers have told."""


class Watched:
    """A session that is watched; what is told of labels compares it with a profile."""

    __slots__ = ("session",)

    def __init__(self, session: Any) -> None:
        self.session = session


def note(session: Any, is_watched: bool) -> None:
    """Note whether somebody watches a session; one that ends is watched no more."""
    if not is_watched:
        watched.pop(session, None)
    elif session not in watched:
        watched[session] = Watched(session)
