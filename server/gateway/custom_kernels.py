"""Whether a session may run kernels of its client's own, and where: the one place that decides it.

What such a kernel can do to others is in docs/custom-kernels.md.
"""

from __future__ import annotations

from telegrad_protocol.errors import NotAllowedError

from .placement import Isolation
from .settings import Allowed


def grants_kernels(allowed: Allowed, asked: bool) -> bool:
    """Return whether a session gets kernels of its own; NotAllowedError where it asks and the operator forbids it.

    ``allowed`` is what is set for its tenant, or else ``TELEGRAD_ALLOW_KERNELS``.
    """
    if not asked:
        return False
    if allowed == "0":
        raise NotAllowedError(
            "connect: this server runs no kernels of its clients' own; its operator can allow them with "
            "TELEGRAD_ALLOW_KERNELS=1, and without kernels=True the session is opened all the same"
        )
    return True


def needs_own_worker(allowed: Allowed, isolation: Isolation, asked: bool) -> bool:
    """Return whether a session that asks for kernels must not share its worker: they reach all of its memory.

    Where workers are those of one tenant, only its own sessions are reached.
    """
    return asked and allowed == "1" and isolation == "shared"
