"""What a host's answers are made from: the devices of a worker process, its open sessions, and what was executed.

It is a plain object below the answers to control requests; ``host`` opens and closes sessions on it.
"""

from __future__ import annotations

from collections import Counter

from server.engine.value import Backend
from server.session.session import Session
from server.session.state import find_backend
from telegrad_protocol.meta import Device


class HostState:
    """The devices of one worker, and its sessions by number."""

    def __init__(self, backends: dict[Device, Backend], default_device: Device) -> None:
        self.backends = backends
        self.default_device = default_device
        self.sessions: dict[int, Session] = {}
        self._finished_operations: Counter[str] = Counter()
        """By tenant, operations that sessions executed which are closed."""

    @property
    def operations(self) -> Counter[str]:
        """By tenant, how many operations were executed since the worker started."""
        executed = self._finished_operations.copy()
        for session in self.sessions.values():
            executed[session.state.tenant] += session.state.operations
        return executed

    def backend(self, name: str) -> Backend:
        """Return the backend of a device by name; that of the default device where ``name`` is empty."""
        return find_backend(self.backends, self.default_device, name)
