"""What requests over HTTP make the gateway hold: bodies, what is parsed of them, and elements on their way out.

It is charged to the tenant, whose requests may hold as much at a time as its ``host_memory``. Knows no endpoint.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from telegrad_protocol.errors import OutOfMemoryError

from .tenants import Tenant

MEMORY: Final = "telegrad.memory"
"""Under this name the scope of a request has its ``RequestMemory``."""
MIB: Final = 1 << 20


class RequestQuotas:
    """What the requests of each tenant hold now; ``usual`` is the limit of tenants that have none of their own."""

    def __init__(self, usual: int) -> None:
        self._usual = usual
        self.held: Counter[str] = Counter()
        """Bytes by the tenant's name."""

    def of(self, tenant: Tenant) -> RequestMemory:
        """Return the account of a new request; ``end`` has to follow."""
        return RequestMemory(self.held, tenant.name, int(tenant.host_memory or self._usual))


class RequestMemory:
    """What one request holds until it is answered."""

    def __init__(self, held: Counter[str], tenant: str, limit: int) -> None:
        self._held, self._tenant, self._limit = held, tenant, limit
        self._nbytes = 0

    def charge(self, nbytes: int) -> None:
        """Add what is held from now on; OutOfMemoryError where the tenant's requests would hold too much."""
        others = self._held[self._tenant] - self._nbytes
        wanted = self._nbytes + nbytes
        if others + wanted > self._limit:
            raise OutOfMemoryError(
                f"the request needs {wanted / MIB:,.1f} MiB of the server's memory for its body and its answer, and "
                f"other requests of the tenant hold {others / MIB:,.1f} MiB; the limit is {self._limit / MIB:,.0f} MiB "
                "(TELEGRAD_HOST_QUOTA_BYTES, or host_memory of the tenant); send fewer values at once, send and read "
                "large tensors as npy, or wait until other requests are answered"
            )
        self._held[self._tenant] += nbytes
        self._nbytes = wanted

    def end(self) -> None:
        """Take everything back."""
        self._held[self._tenant] -= self._nbytes
        if not self._held[self._tenant]:
            del self._held[self._tenant]
        self._nbytes = 0
