"""Numbers for tenants, by which the engine keeps what it works out for the calls of one apart from those of others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from server.engine.replay.remembered import forget_domain

KEPT: Final = 256
"""For so many tenants it is kept what was worked out, though they have no session at the moment."""


class Domains:
    """The numbers in use. That of the nameless tenant, where no gateway tells them apart, is 0."""

    def __init__(self) -> None:
        self._numbers = {"": 0}

    def number_of(self, tenant: str, in_use: Collection[int]) -> int:
        """Return the number of a tenant; it may be that of one without sessions, whose calls are forgotten then.

        ``in_use`` are the numbers of tenants with sessions.
        """
        number = self._numbers.pop(tenant, None)
        if number is None:
            number = len(self._numbers) if len(self._numbers) < KEPT else self._take_back(in_use)
        self._numbers[tenant] = number
        return number

    def _take_back(self, in_use: Collection[int]) -> int:
        """The number of the tenant that came last the longest ago; a new one where all have sessions."""
        for tenant, number in self._numbers.items():
            if number and number not in in_use:
                del self._numbers[tenant]
                forget_domain(number)
                return number
        return max(self._numbers.values()) + 1
