"""Mutated frames through the sockets of a real server, TCP and Unix, beside a victim that uses the real client.

Here the headers of frames, what a WebSocket sends, and the bodies of HTTP requests are mutated, too. The server may end
the attacker's connection and session at any time; it may not end a worker, answer with an internal error, or keep the
victim waiting.
"""

from __future__ import annotations

import contextlib
import random
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

import telegrad as tg
from telegrad_protocol import wire
from telegrad_protocol.errors import ProtocolError
from telegrad_protocol.messages import Failure, Resume
from telegrad_protocol.ops import BY_INDEX
from tests.end_to_end.server_process import ServerProcess

from .corpus import Program, first_frames
from .direct_attacker import DirectAttacker
from .frames import random_frame
from .mutation import Frame, mutate_bytes, random_call, random_value

FRAMES_PER_PORTION = 4000
FRAMES_PER_LOOK = 25
HTTP_SHARE = 0.01
LEASE_SECONDS = 600
_TRIES = 10
"""Of the victim, whose process may have to wait for a processor; attackers' sessions end after a second."""
SETTINGS = {
    "TELEGRAD_OPERATION_WORK": "1e6", "TELEGRAD_GRAPH_NODES": "5000", "TELEGRAD_SESSION_QUOTA_BYTES": str(1 << 20),
    "TELEGRAD_LEASE_SECONDS": "1", "TELEGRAD_INSTRUCTION_SECONDS": "20",
    "TELEGRAD_DEBUG": "1",
}  # fmt: skip


class Attacker:
    """One session over a WebSocket, opened without the client."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(trust_env=False, timeout=60, base_url=url, verify=False)
        hello = self.http.post("/v1/sessions", json={}).raise_for_status().json()
        self.path, self.key = f"/v1/sessions/{hello['session']}", {"Telegrad-Session-Key": hello["key"]}
        stream = f"{url.replace('http', 'ws', 1)}{self.path}/stream?received=0&attachment={hello.get('attachment', 1)}"
        self.socket: ClientConnection = connect(
            stream, additional_headers=self.key, proxy=None, max_size=None, compression=None
        )
        self._sequence = self._received = 0
        for frame in first_frames():
            self.send(frame)

    def send(self, frame: Frame, rng: random.Random | None = None) -> None:
        """Send a frame, with a header in which something is wrong where ``rng`` says so."""
        self._sequence += 1
        header = wire.LINK_HEADER.pack(frame[0], self._sequence, self._received)
        if rng is not None and rng.random() < 0.01:
            header = mutate_bytes(rng, header, frame[1])
        self.socket.send(header + frame[1])

    def read(self) -> list[Failure]:
        """The failures among what has come, which the session is told to leave behind."""
        failures = []
        with contextlib.suppress(TimeoutError):
            while True:
                message = self.socket.recv(timeout=0)
                assert isinstance(message, bytes)
                kind, sequence, _ = wire.LINK_HEADER.unpack_from(message)
                self._received = max(self._received, sequence)
                body = message[wire.LINK_HEADER.size :]
                replies = wire.decode_replies(body) if kind == wire.BATCH else ()
                failures += [reply for reply in replies if isinstance(reply, Failure)]
        if failures:
            self.send((wire.BATCH, wire.encode_batch([Resume(failure.number) for failure in failures])))
        return failures

    def close(self) -> None:
        """End the session, if it is there."""
        with contextlib.suppress(WebSocketException, OSError):
            self.socket.close()
        self.http.delete(self.path, headers=self.key)
        self.http.close()


class SocketFuzz:
    """A server, a victim, and attackers one after the other; a context manager."""

    def __init__(self, seed: int, programs: list[Program]) -> None:
        self.seed, self._programs = seed, programs
        self._all = [frame for program in programs for frame in program]
        self._server = ServerProcess(**SETTINGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.__exit__()

    def run(self, portion: int) -> tuple[int, list[str]]:
        """Send a portion's frames; return how many were mutated, and what was wrong, in words."""
        rng = random.Random(f"{self.seed}:{portion}")
        wrong: list[str] = []
        victim = tg.connect(self._server.url, lease=LEASE_SECONDS)
        held = tg.arange(12.0).reshape(3, 4)
        attacker = self._attacker(rng)
        for number in range(FRAMES_PER_PORTION):
            try:
                if rng.random() < HTTP_SHARE:
                    wrong += self._request(attacker, rng)
                else:
                    attacker.send(random_frame(rng, rng.choice(self._all), rng.choice(self._all)), rng)
                if number % FRAMES_PER_LOOK == 0:
                    wrong += [_text(failure) for failure in attacker.read() if failure.code == "InternalError"]
            except (WebSocketException, ProtocolError, OSError):
                attacker.close()
                attacker = self._attacker(rng)
            if number % (8 * FRAMES_PER_LOOK) == 0:
                wrong += _look_at_victim(held, rng)
        attacker.close()
        victim.disconnect()
        if restarts := self._server.metric("telegrad_worker_restarts_total"):
            wrong.append(f"the worker was started again {restarts:g} times")
        return FRAMES_PER_PORTION, [f"portion {portion}: {text}" for text in wrong]

    def _attacker(self, rng: random.Random) -> Attacker | DirectAttacker:
        """A new attacker, on either path to the worker; leases are short, and may end before it has begun."""
        is_direct = rng.random() < 0.5
        for _ in range(_TRIES):
            with contextlib.suppress(WebSocketException, OSError):
                return DirectAttacker(self._server.url, self._server.unix) if is_direct else Attacker(self._server.url)
        raise ConnectionResetError(f"no session could be opened in {_TRIES} attempts")

    def _request(self, attacker: Attacker | DirectAttacker, rng: random.Random) -> list[str]:
        """Send a request over HTTP; what is wrong with the answer."""
        operation = rng.choice(BY_INDEX)
        call = random_call(rng, operation)
        step: Any = {"op": operation.name, "args": call[4], "out": rng.choice((1, 70, None))}
        if rng.random() < 0.3:
            step = random_value(rng)
        body = msgspec.json.encode(_as_json(step))
        if rng.random() < 0.5:
            body = mutate_bytes(rng, body, b'{"tensor": 1}')
        place = rng.choice(("/ops", "/ops", "/backward", "/tensors/1"))
        method = "PUT" if place == "/tensors/1" else "POST"
        headers = attacker.key | {"Content-Type": "application/json"}
        answer = attacker.http.request(method, attacker.path + place, content=body, headers=headers)
        is_wrong = answer.status_code >= 500 and answer.status_code not in (501, 503, 507)
        return [f"{method} {place} {body!r}: {answer.status_code} {answer.text}"] if is_wrong else []


def _look_at_victim(held: tg.Tensor, rng: random.Random) -> list[str]:
    """Compute with the victim's tensor; what is wrong with the result."""
    factor = float(rng.randrange(1, 9))
    got = (held * factor).tolist()
    expected = [[factor * (4 * row + column) for column in range(4)] for row in range(3)]
    return [] if got == expected else [f"the victim got {got}"]


def _as_json(value: Any) -> Any:
    """``value`` without bytes and numbers that JSON cannot say."""
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def _text(failure: Failure) -> str:
    return f"{failure.code}: {failure.message} [{failure.operands}]\n{failure.traceback}"
