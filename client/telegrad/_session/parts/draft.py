"""A batch of instructions between its encoding and the moment when the transport has it."""

from __future__ import annotations

from typing import NamedTuple

from telegrad._session.thread_modes import Modes


class Draft(NamedTuple):
    """A batch that is being sent.

    ``end`` is its last instruction; ``accepted`` is how many frames the transport had accepted before; ``told`` are the
    modes that the server has after it, ``submitted`` the number of its last instruction.
    """

    end: object
    accepted: int
    told: Modes
    submitted: int
