"""The engine process: one thread, one loop over its sockets, nothing that blocks while there is work.

It reads frames from the gateway, lets sessions execute them in turn, a bounded number of instructions at a time, writes
their replies, and answers control requests between turns. What is in a frame it leaves to ``Session``. A defect that
shows in one session ends this session and no other; the death of the gateway ends the process, and so does a device
that will never answer again: the gateway is told why, tells all sessions, and starts another process.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import logging
import os
import select
import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from server.engine.blas_threads import share_cores
from server.ipc import channel
from server.ipc.channel import FrameReader, FrameWriter
from server.ipc.logs import configure_logs
from server.ipc.worker_environment import on_one_stack
from telegrad_protocol import wire
from telegrad_protocol.errors import TelegradError, UnknownIdError, WorkerCrashedError

from .connection import Session, SessionChannel, failure_of

SPIN_SECONDS: Final = 0.001
NAP_SECONDS: Final = 50e-6
"""While reads from a device are pending, look this often, after a millisecond of looking all the time."""

GARBAGE_THRESHOLD: Final = 20_000
"""Values are freed by reference counts; cycles are rare, so the collector need not look at every 700 objects."""

FAREWELL_SECONDS: Final = 1.0
DEVICE_LOST: Final = 3
"""The exit status of a worker whose device is beyond use."""

log = logging.getLogger("server.worker.loop")


class Host(Protocol):
    """What the worker wants of the engine."""

    def open(self, number: int, options: dict[str, Any]) -> Session: ...
    def control(self, verb: str, args: list[Any]) -> Any: ...
    def hello(self) -> dict[str, Any]: ...
    def heed(self, error: Exception) -> None:
        """Raise WorkerCrashedError if, after this error, no session can go on."""


class Worker:
    """The loop."""

    def __init__(self, control: socket.socket, host: Host) -> None:
        self._host = host
        self._control = control
        self._reader, self._writer = FrameReader(control), FrameWriter(control)
        self._sessions: dict[int, SessionChannel] = {}
        self._selector = selectors.DefaultSelector()
        self._interests: dict[int, int] = {}
        self._watch(control, selectors.EVENT_READ, None)
        self._own_verbs: dict[str, Callable[[int, list[Any]], Any]] = {"open": self._open, "close": self._close}
        self._idle_since = 0.0

    def run(self) -> None:
        """Serve until the gateway is gone; raises WorkerCrashedError where a device is beyond use."""
        self._send(channel.HELLO, 0, self._host.hello())
        try:
            self._serve()
        except EOFError:
            log.info("the gateway is gone")
        except WorkerCrashedError as lost:
            self._bid_farewell(lost)
            raise
        self._close_all()

    def _serve(self) -> None:
        self._flush_control()
        while True:
            self._serve_sockets(self._events())
            self._run_sessions()

    def _bid_farewell(self, lost: WorkerCrashedError) -> None:
        """Tell the gateway why; what the sessions hold is gone with the device, and they cannot be closed."""
        log.critical("the engine gives up: %s", lost.message, exc_info=lost)
        self._control.settimeout(FAREWELL_SECONDS)
        self._send(channel.FAREWELL, 0, lost.message)
        with contextlib.suppress(EOFError):
            self._writer.flush()

    def _events(self) -> list[tuple[selectors.SelectorKey, int]]:
        sessions = self._sessions.values()
        if any(each.runnable for each in sessions):
            self._idle_since = 0.0
            return self._selector.select(0)
        if any(each.waits for each in sessions):
            return self._events_while_waiting()
        return self._selector.select(None)

    def _events_while_waiting(self) -> list[tuple[selectors.SelectorKey, int]]:
        now = time.monotonic()
        self._idle_since = self._idle_since or now
        if now - self._idle_since > SPIN_SECONDS:
            select.select([self._selector], [], [], NAP_SECONDS)
        return self._selector.select(0)

    def _serve_sockets(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, mask in events:
            if key.data is None:
                if mask & selectors.EVENT_READ:
                    self._read_control()
                self._flush_control()
            elif mask & selectors.EVENT_READ:
                self._guarded(key.data, key.data.read)

    def _run_sessions(self) -> None:
        for each in list(self._sessions.values()):
            if each.runnable:
                self._guarded(each, each.turn)
            elif each.waits:
                self._guarded(each, each.poll)
            elif each.writer.pending:
                self._guarded(each, each.writer.flush)
            if each.ended and not each.writer.pending:
                self._discard(each)
            elif each.number in self._sessions:
                self._watch(each.socket, each.interest, each)

    def _guarded(self, each: SessionChannel, step: Callable[[], Any]) -> None:
        """Whatever goes wrong in a session is the end of this session only."""
        try:
            step()
        except EOFError:
            self._discard(each)
        except WorkerCrashedError:
            raise
        except Exception as error:
            self._host.heed(error)
            log.exception("session %d ends", each.number)
            self._guarded_end(each, error)

    def _guarded_end(self, each: SessionChannel, error: Exception) -> None:
        try:
            each.end(error)
        except Exception as another:
            self._host.heed(another)
            log.exception("session %d could not be ended in good order", each.number)
            self._discard(each)

    def _discard(self, each: SessionChannel) -> None:
        if self._sessions.pop(each.number, None) is None:
            return
        self._watch(each.socket, 0, each)
        each.writer.close()
        each.socket.close()
        if each.ended:
            return
        try:
            each.ended = True
            each.session.close()
        except Exception as error:
            self._host.heed(error)
            log.exception("session %d could not be closed in good order", each.number)

    def _watch(self, sock: socket.socket, interest: int, data: SessionChannel | None) -> None:
        fd = sock.fileno()
        before = self._interests.get(fd, 0)
        if interest == before:
            return
        if not interest:
            self._selector.unregister(fd)
        elif not before:
            self._selector.register(fd, interest, data)
        else:
            self._selector.modify(fd, interest, data)
        self._interests[fd] = interest

    def _read_control(self) -> None:
        for frame in self._reader.read(fds=True):
            session, verb, args = msgspec.msgpack.decode(frame.body)
            try:
                self._answer_request(frame.number, session, verb, args)
            except WorkerCrashedError:
                raise
            except Exception as error:
                self._host.heed(error)
                if not isinstance(error, TelegradError):
                    log.exception("control request %s failed", verb)
                self._send(channel.ANSWER, frame.number, [False, failure_of(error)])

    def _answer_request(self, request: int, number: int | None, verb: str, args: list[Any]) -> None:
        own = self._own_verbs.get(verb)
        if own is not None:
            answer = own(number or 0, args)
        elif number is None:
            answer = self._host.control(verb, args)
        else:
            answer = self._session(number).session.control(verb, args)
        self._send(channel.ANSWER, request, [True, answer])

    def _session(self, number: int) -> SessionChannel:
        each = self._sessions.get(number)
        if each is None or each.ended:
            raise UnknownIdError(f"session {number} is not open here")
        return each

    def _open(self, number: int, args: list[Any]) -> None:
        sock = socket.socket(fileno=self._reader.fds.popleft())
        try:
            channel.prepare(sock)
            session = self._host.open(number, args[0])
        except BaseException:
            sock.close()
            raise
        each = self._sessions[number] = SessionChannel(number, session, sock)
        self._watch(sock, each.interest, each)

    def _close(self, number: int, args: list[Any]) -> None:
        each = self._sessions.get(number)
        if each is not None:
            self._discard(each)

    def _send(self, kind: int, number: int, value: Any) -> None:
        self._writer.put(kind, number, [wire.encoder.encode(value)])

    def _flush_control(self) -> None:
        drained = self._writer.flush()
        self._watch(self._control, selectors.EVENT_READ | (0 if drained else selectors.EVENT_WRITE), None)

    def _close_all(self) -> None:
        for each in list(self._sessions.values()):
            self._discard(each)
        self._selector.close()
        self._control.close()


def load_host(name: str) -> Callable[[list[str]], Host]:
    """The host class that ``module:class`` names."""
    module, _, attribute = name.partition(":")
    host: Callable[[list[str]], Host] = getattr(importlib.import_module(module), attribute)
    return host


def main() -> None:
    """Serve the gateway at the other end of ``--fd`` until it is gone."""
    parser = argparse.ArgumentParser(description="telegrad engine process, started by the gateway")
    parser.add_argument("--fd", type=int, required=True, help="control channel")
    parser.add_argument("--devices", default="", help="separated by commas; all there are where empty")
    parser.add_argument("--host", default="server.worker.host:Host", help="engine to serve, module:class")
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_args()
    configure_logs(options.log_level)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # sent to the whole group, they are for the gateway, which ends us
    control = socket.socket(fileno=options.fd)
    channel.prepare(control)
    worker = Worker(control, load_host(options.host)([name for name in options.devices.split(",") if name]))
    share_cores()
    gc.freeze()  # modules and tables live as long as the process
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        on_one_stack(worker.run)
    except WorkerCrashedError:
        logging.shutdown()
        os._exit(DEVICE_LOST)  # an orderly end would wait for the device
