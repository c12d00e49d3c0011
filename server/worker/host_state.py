"""What a host's answers are made from: the devices of a worker process, its open sessions, and what was executed.

It is a plain object below the answers to control requests; ``host`` opens and closes sessions on it.
"""

from __future__ import annotations

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
        self._finished_operations = 0
        """Operations that sessions executed which are closed."""

    @property
    def operations(self) -> int:
        """How many operations were executed since the worker started."""
        return self._finished_operations + sum(session.state.operations for session in self.sessions.values())

    def backend(self, name: str) -> Backend:
        """Return the backend of a device by name; that of the default device where ``name`` is empty."""
        return find_backend(self.backends, self.default_device, name)
