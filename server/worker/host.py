"""What one worker process owns: its devices, and the sessions that live on it.

Knows the engine and sessions; knows nothing of sockets.
"""

from __future__ import annotations

import gc
import logging
from typing import Any, ClassVar

from server.engine import context
from server.engine import ops as _ops  # the implementations file themselves with the dispatcher
from server.engine.devices import open_device
from server.engine.value import Backend
from server.session.call_stack import Frame, frames_of
from server.session.session import Session
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, DeviceError, InternalError, TelegradError, WorkerCrashedError
from telegrad_protocol.messages import CHUNK_BYTES, INLINE_BYTES, PROTOCOL_VERSION
from telegrad_protocol.meta import CPU, Device
from telegrad_protocol.ops import TABLE_HASH

from . import control as controls

_ = _ops
log = logging.getLogger(__name__)

COLLECTIONS = 3
"""How often to collect garbage for a closed session that still holds memory; it takes milliseconds."""


class Host:
    """The devices of one worker, and its sessions by number."""

    # Of all hosts in this process: they share the devices.
    _last_number = 0
    _everybody: ClassVar[dict[int, Session]] = {}

    def __init__(self, devices: list[str]) -> None:
        names = [Device(name) for name in devices]
        self.backends: dict[Device, Backend] = {d: open_device(d) for d in dict.fromkeys((*names, CPU))}
        self.default_device = names[0] if names else CPU
        self.sessions: dict[int, Session] = {}
        self.operations = 0
        self._ending: dict[int, int] = {}
        for backend in self.backends.values():
            backend.allocator.history.locate = _locate

    @classmethod
    def new_number(cls) -> int:
        """A number for a session that is opened in this process, where no gateway counts."""
        return cls._last_number + 1

    def open(self, number: int, options: dict[str, Any]) -> Session:
        """A new session; ``quota_bytes`` among the options limits what it may allocate on each device.

        Numbers rise: a free block remembers by number whose data it holds.
        """
        quota = options.get("quota_bytes")
        if quota is not None and (type(quota) is not int or quota < 0):
            raise ArgumentError(f"quota_bytes: expected a number of bytes, got {quota!r}")
        if number <= Host._last_number:
            raise InternalError(f"session number {number} was used before")
        self._settle()
        Host._last_number = number
        session = Session(number, self, self.backends, self.default_device)
        self.sessions[number] = self._everybody[number] = session
        for backend in self.backends.values():
            backend.allocator.set_quota(number, quota)
        return session

    def forget(self, session: Session) -> None:
        """Called by a session that was closed; reference cycles that held its values are collected at once."""
        if self.sessions.pop(session.number, None) is None:
            return
        del self._everybody[session.number]
        for backend in self.backends.values():
            with backend.exclusive_allocator() as allocator:
                allocator.abandon(session.number)
        self._ending[session.number] = COLLECTIONS
        self._settle()

    def _holds_memory(self, number: int) -> bool:
        return any(backend.allocator.allocated_bytes(number) for backend in self.backends.values())

    def _settle(self) -> None:
        """End the accounts of closed sessions; an exception in flight may hold values until later."""
        if any(left and self._holds_memory(number) for number, left in self._ending.items()):
            self._ending = {number: max(left - 1, 0) for number, left in self._ending.items()}
            gc.collect()
        for number in [number for number in self._ending if not self._holds_memory(number)]:
            if self._ending.pop(number) == 0:
                log.info("memory of a closed session was freed late", extra={"session": number})
            for backend in self.backends.values():
                backend.allocator.end_session(number)

    def heed(self, error: Exception) -> None:
        """Look whether a device is beyond use after an error; raise WorkerCrashedError then, since every session is."""
        if isinstance(error, TelegradError) and not isinstance(error, DeviceError | InternalError):
            return
        for device, backend in self.backends.items():
            if fault := backend.allocator.upstream.fault():
                raise WorkerCrashedError(f"device {device} failed for good ({fault})") from error

    def control(self, verb: str, args: list[Any]) -> Any:
        """Answer a request about the devices."""
        self._settle()
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
            raise DeviceError(f"device {device} is not available here; there are: {', '.join(map(str, self.backends))}")
        return found


def _locate() -> list[Frame]:
    """Which operation, on which line of its client, the engine works on: frames for the allocators' history."""
    session = Host._everybody.get(context.current.owner)
    return [] if session is None else frames_of(session)
