"""What a request passes in C and in Python is the same, whatever the worker's end sends, and in whichever pieces."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import random
import signal
import socket
import struct
import termios
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from telegrad._native import binding
from telegrad._session import thread_modes
from telegrad._session.handshake import open_session
from telegrad._session.sending.send_queue import FIRST_NUMBER
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import DEFAULT, Modes
from telegrad._transport.ahead import VARIABLE
from telegrad._transport.socket_transport import SocketTransport
from telegrad_protocol import messages, pace, wire
from telegrad_protocol.channels.frames import HEADER, Frame, FrameReader, FrameWriter
from telegrad_protocol.errors import ProtocolError, TelegradError
from telegrad_protocol.messages import CHUNK_BYTES, Answer, Call, Data, Failure, Free, Query, Read

from ..support.compilers import needs_calls_in_c
from .conftest import GatewayProcess
from .waiting import wait_until

pytestmark = needs_calls_in_c
WAYS = ("alone", "alone", "alone", "report", "answers", "failure", "large", "acknowledged", "split")


class Peer:
    """Stands in for the worker from where it takes over the direct channel of a session: it answers each request."""

    def __init__(self, session: ClientSession, seed: int) -> None:
        self.rng = random.Random(seed)
        self.taken: list[Any] = []
        """The instructions that have come."""
        self.told: list[str] = []
        """In which way each request was answered."""
        direct = session.transport._direct
        self._link, self._number, self._seen = direct.link, direct.link.received, direct.link.sent
        here, there = socket.socketpair()
        here.setblocking(False)
        direct._socket.close()
        direct._socket, direct._reader, direct._writer = here, FrameReader(here), FrameWriter(here)
        self._socket = there
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        reader = FrameReader(self._socket)
        with contextlib.suppress(EOFError, OSError):
            while True:
                for frame in reader.read():
                    self._answer(frame)

    def _answer(self, frame: Frame) -> None:
        if frame.kind != wire.BATCH:
            return
        assert frame.number == self._seen + 1, "each frame comes once, and in order"
        self._seen = frame.number
        for instruction in wire.decode_instructions(frame.body):
            self.taken.append(instruction)
            if isinstance(instruction, Read | Query):
                way = self.rng.choice(WAYS)
                self.told.append(way)
                self._write(b"".join(getattr(self, f"_{way}")(instruction)), way == "split")

    def _write(self, data: bytes, is_split: bool) -> None:
        while is_split and len(data) > 1:
            at = self.rng.randrange(1, len(data))
            self._socket.sendall(data[:at])
            data = data[at:]
            wait_until(lambda: not _unread(self._socket), "the client has read it")
        self._socket.sendall(data)

    def _frame(self, kind: int, body: bytes) -> bytes:
        self._number += kind != wire.ACK
        return HEADER.pack(len(body), kind, self._seen if kind == wire.ACK else self._number) + body

    def _batch(self, *replies: Any) -> bytes:
        return self._frame(wire.BATCH, wire.encode_batch(list(replies)))

    def _reply(self, asked: Any) -> Any:
        if isinstance(asked, Query):
            return Answer(asked.request, [asked.request, "text"])
        return Data(asked.request, 0, (8,), 8, struct.pack("<q", asked.request))

    def _alone(self, asked: Any) -> list[bytes]:
        return [self._batch(self._reply(asked))]

    _split = _alone

    def _report(self, asked: Any) -> list[bytes]:
        """Before and behind it comes what nobody waits for."""
        others = [Answer(asked.request + (1 << 40), None)] * 2
        return [self._batch(*others[: self.rng.randrange(3)], self._reply(asked)), self._batch(*others)]

    def _answers(self, asked: Any) -> list[bytes]:
        return [self._batch(Answer(asked.request + (1 << 40), 1)), self._batch(self._reply(asked))]

    def _failure(self, asked: Any) -> list[bytes]:
        number = asked.request
        return [self._batch(Failure(number, number, "ShapeError", f"wrong {number}", "add", "", "", "", 0))]

    def _acknowledged(self, asked: Any) -> list[bytes]:
        return [self._frame(wire.ACK, b""), *self._alone(asked)]

    def _large(self, asked: Any) -> list[bytes]:
        if isinstance(asked, Query):
            return self._alone(asked)
        data = struct.pack("<q", asked.request) * (CHUNK_BYTES // 16)
        first = self._batch(Data(asked.request, 0, (len(data),), len(data)))
        return [first, self._frame(wire.CHUNK, wire.CHUNK_HEADER.pack(asked.request, 0) + data)]


def _unread(sock: socket.socket) -> int:
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), "little")


@pytest.fixture
def sessions(gateway: GatewayProcess) -> Iterator[Any]:
    opened: list[ClientSession] = []

    def open_one() -> ClientSession:
        opened.append(ClientSession(lambda flush: open_session(gateway.unix, {}, flush=flush)))
        return opened[-1]

    yield open_one
    for session in opened:
        session.close()


MODES = (
    DEFAULT, DEFAULT.but(grad=False), DEFAULT.but(inference=True), DEFAULT.but(streams=(("cuda:0", 3),)),
    Modes.first(1), Modes.first(1).but(grad=False),
)  # fmt: skip
"""Of two threads."""


def _ask(session: ClientSession, rng: random.Random) -> Any:
    """Queue some instructions under several modes, ask for something, and return what was told."""
    modes = rng.choice([*MODES, DEFAULT, DEFAULT])
    for _ in range(rng.choice([0, 0, 1, 5])):
        other = modes if rng.random() < 0.8 else rng.choice(MODES)
        session.submit(Call(rng.randrange(9), 0, (session.new_id(),), [rng.random()]), other)
    for _ in range(rng.choice([0, 0, 2])):
        session.free(rng.randrange(1, 99))
    try:
        thread_modes.thread.modes = modes
        if rng.random() < 0.3:
            return session.query("echo", rng.random())
        return bytes(session.read(rng.randrange(99))[2])
    except TelegradError as error:
        return type(error), error.message
    finally:
        thread_modes.thread.modes = DEFAULT


def _run(session: ClientSession, seed: int) -> tuple[Any, ...]:
    """What a program is told, what the peer has seen, and what is left of it at the client."""
    peer, rng = Peer(session, seed), random.Random(seed)
    try:
        told = [_ask(session, rng) for _ in range(150)]
        wait_until(lambda: not _unread(peer._socket), "the last frame is read")
        session.receive_arrived()
        link, counts = session.transport._direct.link, session.transport.stats
        pace = session.ahead.pace
        state = [
            link.received, link.released, link.sent, link.acknowledged, len(link.inbox), session.operations,
            session.round_trips, session.is_idle, session._confirmed, len(session._pending), pace.submitted,
            pace.completed, len(pace._submissions), counts.frames, counts.bytes_sent, counts.bytes_received,
            session._ends._sent, session._is_armed, MODES.index(session._told),
        ]  # fmt: skip
        assert [kept.sequence for kept in link._tail] == list(range(link.acknowledged + 1, link.sent + 1))
        ends = [(kept.end - kept.start, sum(map(len, kept.parts))) for kept in link._tail]
        assert all(counted == bytes_kept for counted, bytes_kept in ends)
        return told, [(type(one), one) for one in peer.taken if not isinstance(one, messages.Resume)], peer.told, state
    finally:
        peer.close()


def test_random_conversations_are_the_same(sessions: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent since time is up, and no report is asked for since something took long."""
    monkeypatch.setattr(SocketTransport, "arm", lambda self: None)
    monkeypatch.setenv(VARIABLE, "1e6")
    done = {"send_queued": 0, "take_answer": 0}
    for name in done:
        function = getattr(ClientSession, name)

        def counted(*args: Any, name: str = name, function: Any = function) -> bool:
            took = bool(function(*args))
            done[name] += took
            return took

        monkeypatch.setattr(ClientSession, name, staticmethod(counted))
    in_c = _run(sessions(), seed)
    assert done["send_queued"] > 100 and done["take_answer"] >= in_c[2].count("alone") // 2 > 10
    for name in done:
        monkeypatch.setattr(ClientSession, name, staticmethod(lambda *args: False))
    assert in_c == _run(sessions(), seed)


def test_what_stands_in_for_a_transports_function_is_called(sessions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler notes batches so."""
    session = sessions()
    peer = Peer(session, 0)
    monkeypatch.setattr(peer.rng, "choice", lambda ways: "alone")
    transport, sizes = session.transport, []
    send = transport.send_batch
    transport.send_batch = lambda body: sizes.append(len(wire.decode_instructions(body))) or send(body)
    for turn in range(5):
        assert session.query("echo")[1] == "text"
        if turn == 2:
            del transport.send_batch
    assert len(sizes) == 3 and sum(sizes) == 3
    peer.close()


def test_threads_that_wait_at_the_same_time_get_their_own_answers(sessions: Any, seed: int) -> None:
    session = sessions()
    peer = Peer(session, seed)
    wrong: list[Any] = []

    def ask() -> None:
        for _ in range(100):
            with contextlib.suppress(TelegradError):
                answer = session.query("echo")
                wrong.extend([] if answer[1] == "text" and answer[0] > 0 else [answer])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    peer.close()
    assert not wrong and session.is_idle and session.round_trips == 400
    assert len({one.request for one in peer.taken if isinstance(one, Query) and one.what == "echo"}) == 400


@pytest.mark.parametrize("body", [b"\xc1", b"\x91\xc0", wire.encode_batch([[1, 2, 3, 4]])[:-1]])
def test_a_reply_that_is_malformed_ends_the_session(
    sessions: Any, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sessions()
    peer = Peer(session, 0)
    monkeypatch.setattr(Peer, "_alone", lambda self, asked: [self._frame(wire.BATCH, body)])
    monkeypatch.setattr(peer.rng, "choice", lambda ways: "alone")
    with pytest.raises(ProtocolError, match="malformed batch of replies"):
        session.query("echo")
    peer.close()


def test_frames_that_are_missing_end_the_session(sessions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = sessions()
    peer = Peer(session, 0)
    peer._number += 1
    monkeypatch.setattr(peer.rng, "choice", lambda ways: "alone")
    with pytest.raises(ProtocolError, match="frames are missing"):
        session.query("echo")
    peer.close()


def test_an_interrupt_ends_the_wait_and_the_answer_is_dropped(sessions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = sessions()
    peer = Peer(session, 0)
    monkeypatch.setattr(peer.rng, "choice", lambda ways: "alone")
    asked, goes_on = threading.Event(), threading.Event()
    alone = Peer._alone

    def late(self: Peer, query: Any) -> list[bytes]:
        if query.request == FIRST_NUMBER:
            asked.set()
            goes_on.wait()
        return alone(self, query)

    monkeypatch.setattr(Peer, "_alone", late)

    def interrupt() -> None:
        asked.wait()
        wait_until(lambda: session.transport._waiting, "the program waits")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.query("echo")
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join()
    goes_on.set()
    assert session.query("echo") == [FIRST_NUMBER + 1, "text"]
    assert session.is_idle
    peer.close()


def test_what_the_socket_does_not_take_at_once_is_sent_later(sessions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = sessions()
    peer = Peer(session, 0)
    monkeypatch.setattr(peer.rng, "choice", lambda ways: "alone")
    direct = session.transport._direct
    direct._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
    kept, keep_rest = [], FrameWriter.keep_rest
    monkeypatch.setattr(FrameWriter, "keep_rest", lambda *args: kept.append(args) or keep_rest(*args))
    for turn in range(40):
        session.submit(Free(list(range(turn, 5000))))
        assert session.query("echo")[1] == "text"
    assert len(kept) == 40
    assert [len(one.ids) for one in peer.taken if isinstance(one, Free)] == [5000 - turn for turn in range(40)]
    peer.close()


def _python_pace() -> ModuleType:
    """The text of Python anew, none of whose functions is replaced."""
    spec = importlib.util.spec_from_file_location("plain_pace", pace.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_paces_in_c_and_in_python_measure_the_same(seed: int) -> None:
    rng, plain = random.Random(seed), _python_pace()
    assert binding.native is not None and type(pace.Pace.complete) is not type(plain.Pace.complete)
    for _ in range(60):
        seconds, unmeasured = rng.choice([rng.uniform(1e-3, 2), float("inf"), 1]), rng.choice([2, 16, 64])
        both = [kind(seconds, unmeasured, rng.choice([0.0, 1e-4])) for kind in (pace.Pace, plain.Pace)]
        both[1].delay = both[0].delay
        submitted, now = 0, rng.uniform(0, 1e6)
        for _ in range(200):
            now += rng.choice([0.0, rng.expovariate(1e4), rng.expovariate(10)])
            what, number = rng.random(), rng.randrange(submitted + 3)
            submitted += rng.choice([0, 1, 1, rng.randrange(100)]) if what < 0.5 else 0
            for one in both:
                if what < 0.5:
                    one.submit(submitted, now)
                elif what < 0.97:
                    one.complete(number, now)
                else:
                    one.forget(submitted)
            seen = [[getattr(one, name) for name in plain.Pace.__slots__] for one in both]
            assert _alike(*seen), (seconds, number, now)


def _alike(one: list[Any], other: list[Any]) -> bool:
    """Numbers may differ by what a processor rounds otherwise where it multiplies and adds at once."""
    pairs = zip(one, other, strict=True)
    return all(a == b or (isinstance(a, float) and abs(a - b) <= 1e-9 * abs(b)) for a, b in pairs)


@pytest.mark.parametrize("args", [(), (1,), (1, 2.0, 3), ("x", 1.0), (1, None)])
def test_wrong_arguments_of_a_pace_are_refused_as_in_python(args: tuple[Any, ...]) -> None:
    if len(args) == 2 and args[1] is None:
        pace.Pace(1.0, 16).complete(*args)  # nothing is completed: the time is not looked at
        return
    with pytest.raises(TypeError):
        pace.Pace(1.0, 16).complete(*args)
