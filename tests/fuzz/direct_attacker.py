"""An attacker at a Unix socket: mutated frames over a direct channel, and chunks by places in its shared memory."""

from __future__ import annotations

import contextlib
import random

import httpx

from telegrad._transport.websocket import Address
from telegrad_protocol import wire
from telegrad_protocol.channels.frames import HEADER
from telegrad_protocol.channels.shared_memory import SLOT_BYTES, SLOTS
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.messages import Failure, Resume
from tests.support.direct_channel import PLACE, RawChannel

from .corpus import first_frames
from .mutation import Frame, mutate_bytes

PATIENCE_SECONDS = 60.0


class DirectAttacker:
    """One session over a direct channel, opened without the client; ``url`` is where it asks over HTTP."""

    def __init__(self, url: str, unix: str) -> None:
        self.http = httpx.Client(trust_env=False, timeout=60, base_url=url, verify=False)
        hello = self.http.post("/v1/sessions", json={}).raise_for_status().json()
        self.path, self.key = f"/v1/sessions/{hello['session']}", {"Telegrad-Session-Key": hello["key"]}
        try:
            self._channel = RawChannel(Address(unix, hello["session"], hello["key"]))
        except (TelegradError, EOFError) as error:
            raise ConnectionResetError(str(error)) from error
        self._channel.socket.settimeout(PATIENCE_SECONDS)
        self._sequence = self._slot = 0
        for frame in first_frames():
            self.send(frame)

    def send(self, frame: Frame, rng: random.Random | None = None) -> None:
        """Send a frame, with a header or a place in which something is wrong where ``rng`` says so."""
        kind, body = frame
        self._sequence += 1
        if rng is not None and kind == wire.CHUNK and len(body) <= SLOT_BYTES and rng.random() < 0.7:
            kind, body = wire.SHARED_CHUNK, self._placed(body, rng)
        header = HEADER.pack(len(body), kind, self._sequence)
        if rng is not None and rng.random() < 0.01:
            header = mutate_bytes(rng, header, body)
        self._channel.socket.sendall(header + body)

    def read(self) -> list[Failure]:
        """The failures among what has come, which the session is told to leave behind."""
        failures: list[Failure] = []
        channel = self._channel
        channel.socket.setblocking(False)
        try:
            while frames := channel.reader.read():
                for frame in frames:
                    replies = wire.decode_replies(frame.body) if frame.kind == wire.BATCH else ()
                    failures += [reply for reply in replies if isinstance(reply, Failure)]
                    if frame.kind != wire.ACK:
                        channel.send(wire.ACK, frame.number, b"")
        except EOFError as error:
            if not failures:
                raise ConnectionResetError("the session has ended") from error
        finally:
            channel.socket.settimeout(PATIENCE_SECONDS)
        if failures:
            self.send((wire.BATCH, wire.encode_batch([Resume(failure.number) for failure in failures])))
        return failures

    def close(self) -> None:
        """End the session, if it is there."""
        with contextlib.suppress(OSError):
            self._channel.close()
        self.http.delete(self.path, headers=self.key)
        self.http.close()

    def _placed(self, body: bytes, rng: random.Random) -> bytes:
        self._slot = (self._slot + 1) % SLOTS
        begin = self._slot * SLOT_BYTES
        self._channel.memory[begin : begin + len(body)] = body
        place = PLACE.pack(self._slot, len(body))
        return mutate_bytes(rng, place, place) if rng.random() < 0.1 else place
