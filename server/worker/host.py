"""What one worker process owns: its devices, and the sessions that live on it.

Knows the engine and sessions; knows nothing of sockets.
"""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Callable
from typing import Any, ClassVar

from server.engine import context
from server.engine import ops as _ops  # the implementations enter themselves in the dispatcher's tables
from server.engine.device import cancellation
from server.engine.devices import open_device
from server.engine.value import Backend
from server.ipc.requests import (
    HOST_REQUESTS,
    SESSION_REQUESTS,
    Free,
    Interrupt,
    ReadChunk,
    ReadEnd,
    UploadEnd,
    to_answer,
)
from server.session.call_stack import Frame, frames_of, name_of_site
from server.session.failures import as_telegrad_error
from server.session.host_memory.account import HostGroup
from server.session.requests import Deferred, answer
from server.session.session import Session
from telegrad_protocol import dtypes
from telegrad_protocol.errors import (
    ArgumentError,
    DeviceError,
    InternalError,
    NotSupportedError,
    TelegradError,
    WorkerCrashedError,
)
from telegrad_protocol.messages import CHUNK_BYTES, INLINE_BYTES, PROTOCOL_VERSION
from telegrad_protocol.meta import CPU, Device
from telegrad_protocol.ops import table_hash
from telegrad_protocol.queries import request_name

from . import control as _control  # the answers enter themselves in the table of requests
from .domains import Domains
from .host_state import HostState

_ = _ops, _control
log = logging.getLogger(__name__)

_GIVE_BACK = frozenset(map(request_name, (Free, Interrupt, ReadChunk, ReadEnd, UploadEnd)))
"""Requests that are answered however much the session holds: they end what it holds, or tell what is there."""
COLLECTIONS = 3
"""How often to collect garbage for a closed session that still holds memory; it takes milliseconds."""


class Host(HostState):
    """Opens and closes the sessions of one worker, and answers control requests."""

    # Both are of all hosts in this process: they share the devices.
    _last_number = 0
    _all_sessions: ClassVar[dict[int, Session]] = {}
    _domains: ClassVar[Domains] = Domains()

    def __init__(self, devices: list[str]) -> None:
        names = [Device(name).on_server for name in devices]
        backends = {device: open_device(device) for device in dict.fromkeys((*names, CPU))}
        super().__init__(backends, names[0] if names else CPU)
        self.has_cpu = True
        self._host_groups: dict[str, HostGroup] = {}
        self.closing: dict[int, int] = {}
        """Closed sessions whose memory is not all free, and how many collections of garbage they may still cost."""
        for backend in self.backends.values():
            backend.allocator.history.locate = _locate

    @classmethod
    def new_number(cls) -> int:
        """Return a number for a session that is opened in this process, where no gateway counts."""
        return cls._last_number + 1

    def open(self, number: int, options: dict[str, Any]) -> Session:
        """Open a session; ``quota_bytes`` among the options limits what it may allocate on each device.

        So does ``tenant_bytes`` for all sessions of ``tenant`` together, or ``memory_share`` of each device, and
        ``host_quota_bytes`` and ``tenant_host_bytes`` for what they make the host hold besides elements of tensors.
        ``isolation`` says whose sessions live in this process; without a gateway that is not known.
        Numbers rise: a free block remembers by number whose data it holds.
        """
        quota, together = (_bytes_of(options, name) for name in ("quota_bytes", "tenant_bytes"))
        host_quota, host_together = (_bytes_of(options, name) for name in ("host_quota_bytes", "tenant_host_bytes"))
        if number <= Host._last_number:
            raise InternalError(f"session number {number} was used before")
        self._collect_closed()
        Host._last_number = number
        session = Session(number, self._open_to_sessions(), self.default_device, self.check_devices, self._closed)
        in_use = {session.state.context.domain for session in self._all_sessions.values()}
        session.state.context.domain = self._domains.number_of(str(options.get("tenant", "")), in_use)
        session.state.isolation = options.get("isolation", session.state.isolation)
        session.state.tenant = str(options.get("tenant", ""))
        session.state.allows_kernels = options.get("kernels") is True
        session.state.host_code = options.get("host_code", session.state.host_code)
        if (ahead := options.get("operations_ahead")) is not None:
            session.launch_ahead(ahead)
        self.sessions[number] = self._all_sessions[number] = session
        for backend in self.backends.values():
            backend.begin_session()
            backend.allocator.set_quota(number, quota)
            most = self._tenant_bytes(backend, together, options.get("memory_share"))
            if most is not None:
                backend.allocator.join_group(number, str(options.get("tenant", "")), most)
        group = self._host_group(str(options.get("tenant", "")), host_together)
        session.state.host_memory.limit(math.inf if host_quota is None else host_quota, group)
        return session

    def _tenant_bytes(self, backend: Backend, nbytes: int | None, share: float | None) -> int | None:
        """Return what a tenant may have of a device: so many bytes, else this share of it."""
        if nbytes is not None or share is None:
            return nbytes
        with backend.exclusive_allocator() as allocator:
            return int(share * allocator.upstream.free_and_total()[1])

    def _open_to_sessions(self) -> dict[Device, Backend]:
        return {device: backend for device, backend in self.backends.items() if self.has_cpu or device is not CPU}

    def _host_group(self, tenant: str, nbytes: int | None) -> HostGroup:
        """Return the group of a tenant's sessions, whose limit is the one that was given last."""
        self._host_groups = {name: group for name, group in self._host_groups.items() if group.members}
        group = self._host_groups.setdefault(tenant, HostGroup())
        group.limit = math.inf if nbytes is None else nbytes
        return group

    def check_devices(self, error: Exception) -> None:
        """Raise WorkerCrashedError if, after this error, a device is beyond use: no session can go on then."""
        if isinstance(error, TelegradError) and not isinstance(error, DeviceError | InternalError):
            return
        for device, backend in self.backends.items():
            if fault := backend.allocator.upstream.fault():
                raise WorkerCrashedError(f"device {device} failed for good ({fault}){self._suspects()}") from error

    def _suspects(self) -> str:
        """Return which kernels of clients may have broken the device; lines only where no other client reads them."""
        kernels = [text for session in self.sessions.values() for text in _last_kernels(session, len(self.sessions))]
        return f", after kernels of the client's own: {', '.join(kernels)}" if kernels else ""

    def request_pause(self, give_way: Callable[[], None]) -> None:
        """Have ``give_way`` called where the work that goes on can be left for a while. Signal handlers call this."""
        cancellation.request_pause(give_way)

    def control(self, session: Session | None, name: str, args: list[Any]) -> Any:
        """Answer a request about one session, or about the whole host."""
        self._collect_closed()
        try:
            if session is None:
                return to_answer(answer(HOST_REQUESTS, self, name, args))
            adds = name not in _GIVE_BACK
            value = session.between_instructions(lambda state: answer(SESSION_REQUESTS, state, name, args), adds)
            if isinstance(value, Deferred):
                raise NotSupportedError(f"{name}: waits for a device, so it can be asked in the session's stream only")
            return to_answer(value)
        except TelegradError:
            raise
        except Exception as error:
            raise as_telegrad_error(error, name) from error

    def hello(self) -> dict[str, Any]:
        """Return what a new client is told of this worker."""
        return {
            "protocol": PROTOCOL_VERSION,
            "table_hash": table_hash(),
            "dtypes": [dtype.name for dtype in dtypes.ALL],
            "devices": [device.name for device in self._open_to_sessions()],
            "default_device": self.default_device.name,
            "limits": {"chunk_bytes": CHUNK_BYTES, "inline_bytes": INLINE_BYTES},
        }

    def _closed(self, session: Session) -> None:
        """Forget a session that was closed; reference cycles that held its values are collected at once."""
        number = session.state.number
        if self.sessions.pop(number, None) is None:
            return
        del self._all_sessions[number]
        self._finished_operations[session.state.tenant] += session.state.operations
        for backend in self.backends.values():
            with backend.exclusive_allocator() as allocator:
                allocator.abandon(number)
        self.closing[number] = COLLECTIONS
        self._collect_closed()

    def _holds_memory(self, number: int) -> bool:
        return any(backend.allocator.allocated_bytes(number) for backend in self.backends.values())

    def _collect_closed(self) -> None:
        """End the accounts of closed sessions; an exception in flight may hold their values until a later call."""
        if any(left and self._holds_memory(number) for number, left in self.closing.items()):
            self.closing = {number: max(left - 1, 0) for number, left in self.closing.items()}
            gc.collect()
        for number in [number for number in self.closing if not self._holds_memory(number)]:
            if self.closing.pop(number) == 0:
                log.info("memory of a closed session was freed late", extra={"session": number})
            for backend in self.backends.values():
                backend.allocator.end_session(number)


def _last_kernels(session: Session, sessions: int) -> list[str]:
    """Return the kernels that a session launched last, the last one first."""
    state = session.state
    last = reversed(state.modules.last)
    return [name if sessions > 1 else f"{name} at {name_of_site(state, site)}" for name, site in last]


def _bytes_of(options: dict[str, Any], name: str) -> int | None:
    nbytes = options.get(name)
    if nbytes is not None and (type(nbytes) is not int or nbytes < 0):
        raise ArgumentError(f"{name}: expected a number of bytes, got {nbytes!r}")
    return nbytes


def _locate() -> list[Frame]:
    """Return the operation that the engine works on and the client's line, as frames for the allocators' history."""
    session = Host._all_sessions.get(context.current.owner)
    return [] if session is None else frames_of(session.state)
