"""The transports that are open in this process: a process that is forked from it gives its copies of them up."""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Inheritable(Protocol):
    """A transport, as far as forked processes are concerned."""

    def abandon(self) -> None:
        """Close this process's copy of the connection."""


_open: Final[weakref.WeakSet[Inheritable]] = weakref.WeakSet()


def keep_from_forked_processes(transport: Inheritable) -> None:
    """Have processes that are forked from now on give their copy of a transport up."""
    _open.add(transport)


def forget(transport: Inheritable) -> None:
    """Leave a transport alone that is closed."""
    _open.discard(transport)


def _abandon_inherited() -> None:
    for transport in list(_open):
        transport.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_inherited)
