"""What one worker process owns: its devices, and the sessions that live on it.

Knows the engine and sessions; knows nothing of sockets.
"""

from __future__ import annotations

import gc
from typing import Any

from telegrad_protocol import dtypes
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.messages import CHUNK_BYTES, INLINE_BYTES, PROTOCOL_VERSION
from telegrad_protocol.meta import CPU, Device
from telegrad_protocol.ops import TABLE_HASH

from . import controls
from .engine import ops as _ops  # the implementations file themselves with the dispatcher
from .engine.backend import Backend, open_device
from .session import Session

_ = _ops


class Host:
    """The devices of one worker, and its sessions by number."""

    def __init__(self, devices: list[str]) -> None:
        names = [Device(name) for name in devices]
        self.backends: dict[Device, Backend] = {d: open_device(d) for d in dict.fromkeys((*names, CPU))}
        self.default_device = names[0] if names else CPU
        self.sessions: dict[int, Session] = {}
        self.operations = 0

    def open(self, number: int, options: dict[str, Any]) -> Session:
        """A new session; ``quota_bytes`` among the options limits what it may allocate on each device."""
        session = Session(number, self, self.backends, self.default_device)
        quota = options.get("quota_bytes")
        for backend in self.backends.values():
            backend.allocator.set_quota(number, quota)
        self.sessions[number] = session
        return session

    def forget(self, session: Session) -> None:
        """Called by a session that was closed; reference cycles that held its values are collected at once."""
        self.sessions.pop(session.number, None)
        if any(b.allocator.allocated_bytes(session.number) for b in self.backends.values()):
            gc.collect()

    def control(self, verb: str, args: list[Any]) -> Any:
        """Answer a request about the devices."""
        return controls.answer_host(self, verb, args)

    def hello(self) -> dict[str, Any]:
        """What a new client is told of this worker."""
        return {
            "protocol": PROTOCOL_VERSION,
            "table_hash": TABLE_HASH,
            "dtypes": [dtype.name for dtype in dtypes.ALL],
            "devices": [device.name for device in self.backends],
            "default_device": self.default_device.name,
            "limits": {"chunk_bytes": CHUNK_BYTES, "inline_bytes": INLINE_BYTES},
        }

    def backend(self, name: str) -> Backend:
        """The backend of a device by name; the default device where ``name`` is empty."""
        device = Device(name) if name else self.default_device
        found = self.backends.get(device)
        if found is None:
            from telegrad_protocol.errors import DeviceError

            raise DeviceError(f"device {device} is not available here; there are: {', '.join(map(str, self.backends))}")
        return found


__all__ = ["Host", "TelegradError"]
