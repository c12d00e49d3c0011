"""A client that has only messages: what goes into a session and what comes out, with nothing in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from server.session.session import Session
from server.session.state import Absent
from server.worker.host import Host
from telegrad_protocol import dtypes, wire
from telegrad_protocol.messages import (
    CHUNK_BYTES,
    Answer,
    Backward,
    Call,
    Data,
    Failure,
    Query,
    Read,
    Reply,
    Resume,
    Upload,
)
from telegrad_protocol.ops import TABLE

F32 = dtypes.float32.code
ONES = np.ones((2, 3), np.float32)


class Talk:
    """One session on a host in this process."""

    def __init__(self, host: Host, **options: Any) -> None:
        self.host = host
        self.number = host.new_number()
        self.session: Session = host.open(self.number, options)
        self._requests = itertools.count(1)
        self._taken: list[tuple[int, bytes]] = []

    def put(self, kind: int, body: bytes) -> None:
        """Hand a frame over, and execute it."""
        self.session.receive(kind, memoryview(body))
        self.run()

    def run(self) -> None:
        while self.session.has_work:
            self.session.run(64)
            self._take()

    def _take(self) -> None:
        self._taken += [(kind, b"".join(parts)) for kind, parts in self.session.take_replies()]
        self.session.frames_left()

    def frames(self) -> Iterator[tuple[int, bytes]]:
        self._take()
        taken, self._taken = self._taken, []
        yield from taken

    def send(self, *instructions: Any) -> list[Reply]:
        """Execute instructions; the replies, data of chunks put into their messages."""
        self.put(wire.BATCH, wire.encode_batch(list(instructions)))
        return self.replies()

    def chunk(self, owner: int, offset: int, data: bytes) -> list[Reply]:
        self.put(wire.CHUNK, wire.CHUNK_HEADER.pack(owner, offset) + data)
        return self.replies()

    def replies(self) -> list[Reply]:
        found: list[Reply] = []
        chunks: dict[int, bytes] = {}
        for kind, body in self.frames():
            if kind == wire.BATCH:
                found += wire.decode_replies(body)
            else:
                owner, offset, data = wire.split_chunk(body)
                assert offset == len(chunks.get(owner, b""))
                chunks[owner] = chunks.get(owner, b"") + bytes(data)
        return [
            Data(r.request, r.dtype, r.shape, r.nbytes, chunks[r.request])
            if isinstance(r, Data) and r.data is None and r.nbytes else r
            for r in found
        ]  # fmt: skip

    def upload(self, id: int, array: Any) -> None:
        """Make tensor ``id`` of a NumPy array."""
        array = np.asarray(array)
        code = dtypes.BY_NAME[array.dtype.name].code
        data = array.tobytes()
        assert len(data) <= CHUNK_BYTES
        assert self.send(Upload(id, 0, code, array.shape, "cpu", data)) == []

    def read(self, id: int) -> Any:
        """The elements of a tensor, or the failure."""
        replies = self.send(Read(next(self._requests), id))
        while not replies:  # a GPU has not come to it
            self.session.poll()
            replies = self.replies()
        (reply,) = replies
        if isinstance(reply, Failure):
            return reply
        assert isinstance(reply, Data) and reply.data is not None
        return np.frombuffer(reply.data, dtypes.ALL[reply.dtype].name).reshape(reply.shape)

    def ask(self, what: str, *args: Any) -> Any:
        """The answer to a query, or the failure."""
        (reply,) = self.send(Query(next(self._requests), what, list(args)))
        return reply.value if isinstance(reply, Answer) else reply

    def resume(self) -> None:
        assert self.send(Resume(self.session.state.failure)) == []

    def held(self) -> int:
        return sum(b.allocator.allocated_bytes(self.number) for b in self.host.backends.values())

    def contents(self) -> dict[int, Any]:
        """All that the session holds, to see whether it changed."""
        values = self.session.state.values
        return {id: _picture(value) for id, value in values.items() if not isinstance(value, Absent)}


def _picture(value: Any) -> Any:
    grad = value.autograd.grad if value.autograd is not None else None
    elements = value.meta, value.array.tobytes(), value.autograd is not None and value.autograd.requires_grad
    return elements, None if grad is None else _picture(grad)


def call(
    name: str, outs: tuple[int, ...] | int, *args: Any, site: int = 0, freed: Sequence[int] = (), **kwargs: Any
) -> Call:
    """A ``Call`` with its arguments as they travel; what is not given has its default."""
    op = TABLE[name]
    raw = list(args)
    for param in op.params[len(args) :]:
        default = param.default if param.kind.encode is None else param.kind.encode(param.default)
        raw.append(kwargs.get(param.name, default))
    return Call(op.index, site, (outs,) if isinstance(outs, int) else outs, raw, freed)


def fails(talk: Talk, *instructions: Any) -> Failure:
    """The one failure that these instructions end in."""
    (failure,) = talk.send(*instructions)
    assert isinstance(failure, Failure), failure
    return failure


def backward(roots: tuple[int, ...] = (3,), leaves: Any = ((1, 9),), **rest: Any) -> Backward:
    options = {"retain_graph": False, "create_graph": False} | rest
    return Backward(0, roots, (None,) * len(roots), list(leaves), **options)


def begin_upload(talk: Talk, id: int, shape: tuple[int, ...], **rest: Any) -> Any:
    options = {"dtype": F32, "device": "cpu", "data": None} | rest
    return talk.send(Upload(id, 0, options["dtype"], shape, options["device"], options["data"]))
