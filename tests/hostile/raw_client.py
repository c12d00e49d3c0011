"""A client that sends what it likes: instructions over a WebSocket, without the library's checks and manners."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from telegrad_protocol import dtypes, wire
from telegrad_protocol.messages import Answer, Call, Data, Describe, Description, Failure, Query, Resume
from telegrad_protocol.ops import TABLE, Op
from tests.end_to_end.server_process import ServerProcess
from tests.support import plain_http

FLOAT = dtypes.float32.code


def number_of(operation: str) -> int:
    """The number of an operation in the table."""
    return TABLE[operation].index


def call(operation: str, out: int, *args: Any, freed: tuple[int, ...] = ()) -> Call:
    """A call of one result."""
    return Call(number_of(operation), 0, (out,), list(args), freed)


def call_of(op: Op, out: int, args: list[Any]) -> Call:
    """A call with arguments as they are sent."""
    return Call(op.index, 0, (out,), args)


class RawClient:
    """One session; a context manager that ends it."""

    def __init__(self, server: ServerProcess, token: str = "", **opening: Any) -> None:
        self.url, self._authorization = server.url, {"Authorization": f"Bearer {token}"} if token else {}
        opened = plain_http.post(f"{self.url}/v1/sessions", json=opening, headers=self._authorization, timeout=60)
        opened.raise_for_status()
        self.hello = opened.json()
        self.path = f"{self.url}/v1/sessions/{self.hello['session']}"
        self.headers = self._authorization | {"Telegrad-Session-Key": self.hello["key"]}
        self.failures: list[Failure] = []
        self.closed = ""
        self._sent = self._received = 0
        self._requests = itertools.count(1)
        self._socket: ClientConnection | None = None
        self._held = contextlib.ExitStack()

    @property
    def socket(self) -> ClientConnection:
        """The stream, which is opened at first use."""
        if self._socket is None:
            address = self.path.replace("http", "ws", 1) + "/stream?received=0&attachment=1"
            opening = connect(
                address, additional_headers=self.headers, max_size=None, compression=None, proxy=None, close_timeout=1,
                ping_interval=None,
            )  # fmt: skip
            self._socket = self._held.enter_context(opening)
        return self._socket

    def send(self, *instructions: Any) -> None:
        """Send one frame of instructions."""
        self.send_body(wire.encode_batch(list(instructions)))

    def send_body(self, body: bytes, kind: int = wire.BATCH) -> None:
        """Send one frame; nothing if the session has ended."""
        self._sent += 1
        try:
            self.socket.send(wire.LINK_HEADER.pack(kind, self._sent, self._received) + body)
        except ConnectionClosed:
            while not self.closed:
                self._note_failures(self.read())

    def ask(self, what: str = "tensor_count", *args: Any) -> Any:
        """Ask in the stream; the answer, or the failure that answers."""
        request = next(self._requests)
        self.send(Query(request, what, list(args)))
        return self.reply_to(request)

    def describe(self, id: int) -> Any:
        """What a tensor is, or the failure that answers."""
        request = next(self._requests)
        self.send(Describe(request, (id,)))
        return self.reply_to(request)

    def reply_to(self, request: int) -> Any:
        """Read until a request is answered, or the session has ended; then None. Failures are noted, and resumed."""
        while not self.closed:
            messages = self.read()
            for number in self._note_failures(messages):
                self.send(Resume(number))
            for message in messages:
                if getattr(message, "request", None) == request:
                    return message.value if isinstance(message, Answer) else message
        return None

    def _note_failures(self, messages: list[Answer | Data | Description | Failure]) -> list[int]:
        """Note the failures among messages; the numbers of those that the session waits to be resumed after."""
        failures = [message for message in messages if isinstance(message, Failure)]
        self.failures.extend(failures)
        return [failure.number for failure in failures if failure.number > 0]

    def read(self) -> list[Answer | Data | Description | Failure]:
        """The messages of the next frame; none of one without messages."""
        try:
            frame = self.socket.recv(timeout=60)
        except ConnectionClosed as closed:
            self._note_end(closed)
            return []
        assert isinstance(frame, bytes)
        kind, sequence, _ = wire.LINK_HEADER.unpack_from(frame)
        if kind in (wire.BATCH, wire.CHUNK):
            self._received = sequence
            if sequence % 4 == 0:
                self._acknowledge()
        return wire.decode_replies(frame[wire.LINK_HEADER.size :]) if kind == wire.BATCH else []

    def request(self, method: str, path: str = "", **rest: Any) -> httpx.Response:
        """A request over HTTP about this session."""
        headers = self.headers | rest.pop("headers", {})
        return plain_http.request(method, self.path + path, headers=headers, timeout=60, **rest)

    @contextlib.contextmanager
    def heartbeats(self) -> Iterator[None]:
        """Be heard within the block as a client is whose program does something else: who is silent is cut off."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(1.0):
                self._acknowledge()

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _acknowledge(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            self.socket.send(wire.LINK_HEADER.pack(wire.ACK, 0, self._received))

    def _note_end(self, closed: ConnectionClosed) -> None:
        self.closed = str(closed.rcvd.reason if closed.rcvd else closed) or "closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """End the session, which may have ended, and close the stream."""
        with contextlib.suppress(httpx.HTTPError):
            self.request("DELETE")
        self._held.close()
