"""How many steps a program has made, counted for all who count steps of it: profiles, optimizers, its own loop."""

from __future__ import annotations

from typing import ClassVar


class KinetoStepTracker:
    """The number of the present step: the largest of those that anybody has counted."""

    _current: ClassVar[int] = 0
    _counts: ClassVar[dict[str, int]] = {}

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Have somebody begin to count, from the present step on."""
        cls._counts[requester] = cls._current

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Forget somebody who counts; returns whether there was anybody of the name."""
        return cls._counts.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Count a step of somebody's; returns the number of the present step."""
        cls._counts[requester] = cls._counts.get(requester, cls._current) + 1
        cls._current = max(cls._current, cls._counts[requester])
        return cls._current

    @classmethod
    def current_step(cls) -> int:
        """Return the number of the present step."""
        return cls._current
