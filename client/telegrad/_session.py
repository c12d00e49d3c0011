"""The client's side of a session: numbers for tensors, batches of instructions, answers, and failures.

Everything that changes state goes through ``submit`` in one order. Nothing waits but ``request``. Knows no operations.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from telegrad_protocol import messages, wire
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import (
    CommunicationError, HandshakeError, ProtocolError, SessionLostError, TelegradError, revive,
)  # fmt: skip
from telegrad_protocol.messages import CHUNK_BYTES, INLINE_BYTES, PROTOCOL_VERSION, Failure
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import TABLE_HASH

from ._sites import Sites
from ._transport import Transport

BATCH_OPERATIONS: Final = 64
BATCH_BYTES: Final = 1 << 15
R = TypeVar("R", bound=Any)


class Session:
    """One conversation with a server."""

    def __init__(self, open_transport: Callable[[Callable[[], object]], Transport]) -> None:
        self._pending: deque[Any] = deque()
        self._dead: deque[int] = deque()
        self._pending_bytes = 0
        self._lock = threading.RLock()
        self._answers: dict[int, Any] = {}
        self._downloads: dict[int, Download] = {}
        self._failure: Failure | None = None
        self._lost: TelegradError | None = None
        self.last_id = 0
        self._last_request = 0
        self.round_trips = 0
        self.operations = 0
        self.is_open = True
        self.sites = Sites(self._pending.append)
        self.blocking = os.environ.get("TELEGRAD_LAUNCH_BLOCKING", "0") not in ("", "0")
        self.transport = open_transport(self.flush_quietly)
        hello = self.transport.hello
        self.default_device = Device(hello.default_device)
        self.devices = [Device(name) for name in hello.devices]
        self._check(hello)

    def _check(self, hello: messages.Hello) -> None:
        if hello.protocol != PROTOCOL_VERSION or hello.table_hash != TABLE_HASH:
            self.close()
            raise HandshakeError(
                f"the server ({hello.server_version}, protocol {hello.protocol}) does not have this client's operations "
                f"(protocol {PROTOCOL_VERSION}); install the same version of telegrad and telegrad-server"
            )

    # -- submitting -----------------------------------------------------------------------------------------------

    def new_id(self) -> int:
        """The number of a tensor to be."""
        self.last_id = id = self.last_id + 1
        return id

    def submit(self, instruction: Any) -> None:
        """Queue an instruction; sends the batch when it is full."""
        pending = self._pending
        if not pending:
            self.transport.arm()
        pending.append(instruction)
        if self._dead:
            pending.append(self._frees())
        self.operations = count = self.operations + 1
        if not count % BATCH_OPERATIONS or self.blocking or not self.is_open:
            self._flush_full()

    def _frees(self) -> messages.Free:
        """What died since the last instruction; freed in its place, so that the server reuses memory as PyTorch would."""
        dead = self._dead
        return messages.Free([dead.popleft() for _ in range(len(dead))])

    def _flush_full(self) -> None:
        if self.blocking:
            self.synchronize()
            return
        self.flush()
        self._poll()

    def free(self, id: int) -> None:
        """Forget a tensor; called by its finalizer, so it only notes the number."""
        self._dead.append(id)

    def flush(self) -> None:
        """Send what is queued."""
        self._require_open()
        with self._lock:
            self._send_pending()

    def _send_pending(self) -> None:
        frees = self._frees() if self._dead else None
        pending = self._pending
        batch = [pending.popleft() for _ in range(len(pending))]
        if frees is not None:
            batch.append(frees)
        if batch:
            self._pending_bytes = 0
            self.transport.send_batch(wire.encode_batch(batch))

    def flush_quietly(self) -> None:
        """Send what is queued, from the timer's thread: errors are left for the user's next call."""
        if not self.is_open:
            return
        try:
            self.flush()
        except CommunicationError as error:
            self._lost = error

    def upload(self, meta: Meta, data: memoryview, site: int) -> int:
        """Make a tensor of row-major bytes."""
        id = self.new_id()
        shape, device = meta.shape, meta.device.name
        if len(data) <= INLINE_BYTES:
            self.submit(messages.Upload(id, site, meta.dtype.code, shape, device, bytes(data)))
            self._pending_bytes += len(data)
            if self._pending_bytes > BATCH_BYTES:
                self.flush()
            return id
        with self._lock:
            self._pending.append(messages.Upload(id, site, meta.dtype.code, shape, device))
            self.operations += 1
            self.flush()
            for start in range(0, len(data), CHUNK_BYTES):
                self.transport.send_chunk(id, start, data[start : start + CHUNK_BYTES])
        self._poll()
        return id

    # -- waiting --------------------------------------------------------------------------------------------------

    def request(self, make: Callable[[int], Any]) -> Any:
        """Send a request and wait for its answer: one round trip."""
        self._require_open()
        with self._lock:
            self._last_request += 1
            number = self._last_request
            self._pending.append(make(number))
            self.operations += 1
            self.round_trips += 1
            self._send_pending()
        return self._await(number)

    def _await(self, number: int) -> Any:
        while number not in self._answers:
            with self._lock:
                if number not in self._answers:
                    self._receive(None if self._is_alone() else 0.05)
        answer = self._answers.pop(number)
        if isinstance(answer, Failure):
            self._raise(answer)
        return answer

    def _is_alone(self) -> bool:
        return threading.active_count() <= 2

    def read(self, id: int) -> tuple[DType, tuple[int, ...], memoryview]:
        """The elements of a tensor, row-major: dtype, shape, bytes."""
        from telegrad_protocol.dtypes import ALL

        data: messages.Data = self.request(lambda number: messages.Read(number, id))
        if data.data is not None:
            return ALL[data.dtype], data.shape, memoryview(data.data)
        download = self._downloads.pop(data.request)
        return ALL[data.dtype], data.shape, memoryview(download.buffer)

    def describe(self, ids: tuple[int, ...], device: Device) -> list[tuple[Meta, bool]]:
        """Metas of tensors whose shape only the data could tell, and whether they require grad."""
        from telegrad_protocol.dtypes import ALL

        answer = self.request(lambda number: messages.Describe(number, ids))
        return [
            (Meta.of(shape, ALL[dtype], device, strides, offset), grad) for shape, strides, offset, dtype, grad in answer.metas
        ]

    def query(self, what: str, *args: Any) -> Any:
        """Ask something in order with the operations."""
        return self.request(lambda number: messages.Query(number, what, list(args))).value

    def synchronize(self, device: str = "") -> None:
        """Wait until everything submitted so far has run; raises what failed."""
        self.query("synchronize", device)

    # -- receiving ------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Take what has arrived, and raise a failure that has."""
        while self._lock.acquire(blocking=False):
            try:
                if not self._receive(0):
                    break
            finally:
                self._lock.release()
        failure = self._failure
        if failure is not None:
            self._raise(failure)

    def _receive(self, timeout: float | None) -> bool:
        frame = self.transport.receive(timeout)
        if frame is None:
            return False
        kind, body = frame
        if kind == wire.CHUNK:
            self._take_chunk(body)
        else:
            for reply in wire.decode_replies(body):
                self._take(reply)
        return True

    def _take(self, reply: Any) -> None:
        if isinstance(reply, Failure):
            self._take_failure(reply)
        elif isinstance(reply, messages.Data) and reply.data is None and reply.nbytes:
            self._downloads[reply.request] = Download(reply)
        else:
            self._answers[reply.request] = reply

    def _take_failure(self, failure: Failure) -> None:
        if failure.number == 0:
            self.is_open = False
            self._lost = _error_of(failure)
            raise self._lost
        if failure.request is not None:
            self._answers[failure.request] = failure
        elif self._failure is None:
            self._failure = failure

    def _take_chunk(self, body: memoryview) -> None:
        owner, offset, data = wire.split_chunk(body)
        download = self._downloads.get(owner)
        if download is None:
            raise ProtocolError(f"the server sent a chunk for request {owner}, which was not made")
        download.write(offset, data)
        if download.is_complete:
            self._answers[owner] = download.message

    def _raise(self, failure: Failure) -> None:
        """Raise a failure, once, and let the session go on."""
        self._failure = None
        self._pending.append(messages.Resume(failure.number))
        raise _error_of(failure)

    def _require_open(self) -> None:
        if self._lost is not None:
            raise self._lost
        if not self.is_open:
            raise SessionLostError("this session was closed; connect() again")

    def close(self) -> None:
        """End the session; its tensors are gone."""
        if self.is_open:
            self.is_open = False
            with contextlib.suppress(CommunicationError, OSError):
                self.transport.close()


class Download:
    """A tensor's bytes as they arrive in chunks."""

    __slots__ = ("_missing", "buffer", "message")

    def __init__(self, message: messages.Data) -> None:
        import numpy as np

        self.message = message
        self.buffer = np.empty(message.nbytes, np.uint8)
        self._missing = message.nbytes

    @property
    def is_complete(self) -> bool:
        return self._missing == 0

    def write(self, offset: int, data: memoryview) -> None:
        import numpy as np

        self.buffer[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        self._missing -= len(data)


def _error_of(failure: Failure) -> TelegradError:
    return revive(
        failure.code, failure.message, failure.operation, failure.operands, failure.site, failure.traceback
    )
