"""What a program is told once, by a warning at its own line: that something it asks for is done in another way."""

from __future__ import annotations

import warnings

from telegrad._session.own_code import depth_of_program

_told: set[str] = set()


def note_once(text: str) -> None:
    """Warn at the line of the program that is running, unless the process was warned of this before."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, stacklevel=depth_of_program())
