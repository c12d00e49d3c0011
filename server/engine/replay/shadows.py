"""What a captured piece of work needs besides its launches: who frees memory that a replay frees, and random states."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from server.engine import context


class _Replayed:
    """The keeper of storages whose memory is freed by a call sequence that is replayed, not by the storage."""


REPLAYED: Final = _Replayed()


def random_states() -> list[Any]:
    """Return the states of the session's generators: work that draws random numbers is not the same again."""
    generators = context.current.generators.values()
    return list(chain.from_iterable([(generator.initial_seed(), generator.offset) for generator in generators]))
