"""A session that stands in for the engine: it keeps bytes, counts calls, and misbehaves on request."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from typing import Any

from server.worker.host_protocol import Host
from telegrad_protocol import wire
from telegrad_protocol.messages import CHUNK_BYTES, INLINE_BYTES, Answer, Call, Data, Free, Query, Read, Upload
from telegrad_protocol.ops import table_hash


class StubSession:
    """``Upload``/``Read`` keep bytes; ``Call`` appends its number; ``Query`` answers, or crashes the process."""

    def __init__(self, number: int, options: dict[str, Any]) -> None:
        self.number = number
        self.options = options
        self.calls: list[int] = []
        self.tensors: dict[int, bytearray] = {}
        self._queue: deque[Any] = deque()
        self._replies: list[tuple[int, list[bytes | memoryview]]] = []
        self._looks_left = 0
        self._late: Any = None

    def receive(self, kind: int, body: memoryview) -> None:
        if kind == wire.BATCH:
            self._queue.extend(wire.decode_instructions(body))
        else:
            self._queue.append(wire.split_chunk(body))

    def run(self, budget: int) -> int:
        done = 0
        while self._queue and done < budget:
            self._execute(self._queue.popleft())
            done += 1
        return done

    shows_memory = blocked = is_ahead = False
    ahead = 0
    has_kernels = False

    @property
    def queued(self) -> int:
        return len(self._queue)

    def frames_left(self) -> None: ...

    def pause(self) -> None: ...

    def unpause(self) -> None: ...

    @property
    def has_work(self) -> bool:
        return bool(self._queue)

    @property
    def waits(self) -> bool:
        return self._late is not None

    def linger(self, seconds: float) -> None: ...

    def poll(self) -> None:
        self._looks_left -= 1
        if self._looks_left <= 0 and self._late is not None:
            self._reply([self._late])
            self._late = None

    def take_device_seconds(self) -> float:
        return 0.0

    def take_replies(self) -> list[tuple[int, list[bytes | memoryview]]]:
        replies, self._replies = self._replies, []
        return replies

    def control(self, verb: str, args: list[Any]) -> Any:
        if verb == "fail":
            raise ValueError("asked to fail")
        return {"verb": verb, "args": args, "calls": len(self.calls), "bytes": sum(map(len, self.tensors.values()))}

    def close(self) -> None:
        self.tensors.clear()

    def _execute(self, instruction: Any) -> None:
        match instruction:
            case Call(op=op):
                self.calls.append(op)
            case Free(ids=ids):
                for each in ids:
                    del self.tensors[each]
            case Upload(id=id, shape=shape, data=data):
                self.tensors[id] = bytearray(data if data is not None else shape[0])
            case Read(request=request, id=id):
                self._send_bytes(request, self.tensors[id])
            case Query(request=request, what="wait", args=[turn, looks]):  # as for a device, after much work
                sum(range(turn))
                self._looks_left, self._late = looks, Answer(request, None)
            case Query(request=request, what=what, args=args):
                self._reply([Answer(request, self._answer(what, args))])
            case (int() as owner, int() as offset, memoryview() as data):
                self.tensors[owner][offset : offset + len(data)] = data

    def _answer(self, what: str, args: list[Any]) -> Any:
        match what:
            case "calls":
                return self.calls
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "bug":
                raise ZeroDivisionError("a defect of the engine")
            case "work":
                return sum(range(args[0]))
        return args

    def _reply(self, messages: list[Any]) -> None:
        self._replies.append((wire.BATCH, [wire.encode_batch(messages)]))

    def _send_bytes(self, request: int, data: bytearray) -> None:
        inline = bytes(data) if len(data) <= INLINE_BYTES else None
        self._reply([Data(request, 0, (len(data),), len(data), inline)])
        if inline is None:
            view = memoryview(data)
            for at in range(0, len(data), CHUNK_BYTES):
                header = wire.CHUNK_HEADER.pack(request, at)
                self._replies.append((wire.CHUNK, [header, view[at : at + CHUNK_BYTES]]))


class StubHost(Host):
    def __init__(self, devices: list[str]) -> None:
        self.sessions: dict[int, StubSession] = {}

    def open(self, number: int, options: dict[str, Any]) -> StubSession:
        if options.get("refuse"):
            raise ValueError("asked to refuse")
        return StubSession(number, options)

    def control(self, session: StubSession | None, verb: str, args: list[Any]) -> Any:
        if session is not None:
            return session.control(verb, args)
        if verb == "pid":
            return os.getpid()
        return [verb, args]

    def check_devices(self, error: Exception) -> None: ...

    def hello(self) -> dict[str, Any]:
        return {"table_hash": table_hash(), "dtypes": ["uint8"], "devices": ["cpu"], "limits": {}}

    def request_pause(self, give_way: Callable[[], None]) -> None: ...
