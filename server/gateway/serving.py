"""Runs the application under uvicorn: where it listens, who is told when it is ready, and how it ends.

SIGTERM drains: sessions may go on for a while, new ones are refused. SIGINT and the end of the parent process end it,
after workers were given some seconds to end. A second SIGTERM kills the workers at once. The exit code is 0.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import stat
import sys
import time
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from server.ipc.channel import SOCKET_BUFFER_BYTES
from telegrad_protocol.errors import ConfigurationError

from .dependencies import Gateway
from .door.entry import Entry
from .settings import Settings
from .stream import StreamProtocol
from .unix_socket import UnixListener

SHUTDOWN_SECONDS: Final = 5
DRAIN_POLL_SECONDS: Final = 0.1

log = logging.getLogger(__name__)


def uvicorn_options(gateway: Gateway) -> dict[str, Any]:
    """Which loop and protocol implementations serve, and their limits."""
    return {
        "loop": "uvloop",
        "http": Entry(gateway.connections, gateway.certificate),
        "ws": StreamProtocol,
        "ws_max_size": gateway.settings.max_frame_bytes,
        "ws_per_message_deflate": False,
    }


def listen(settings: Settings) -> socket.socket:
    """A socket bound to the address of ``settings``; ``ConfigurationError`` if that cannot be had."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigurationError(f"TELEGRAD_HOST: {settings.host}: {error.strerror}") from error
    listener = socket.socket(family, kind, number)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        listener.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
    try:
        listener.bind(address)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"TELEGRAD_PORT: {settings.host}:{settings.port}: {reason}") from error
    return listener


def url_of(listener: socket.socket, settings: Settings) -> str:
    """Where clients find what listens there."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def check_descriptors(settings: Settings) -> None:
    """``ConfigurationError`` if a file descriptor was named that is not open, or not what it should be."""
    for name, fd in (("READY_FD", settings.ready_fd), ("PARENT_FD", settings.parent_fd)):
        try:
            mode = stat.S_IFIFO if fd is None else os.fstat(fd).st_mode
        except OSError as error:
            raise ConfigurationError(f"TELEGRAD_{name}: {fd} is not an open file descriptor") from error
        if name == "PARENT_FD" and not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            raise ConfigurationError(f"TELEGRAD_{name}: {fd} is not a pipe")


class GatewayServer(uvicorn.Server):
    """A uvicorn server that announces itself, drains, and does not outlive its parent."""

    def __init__(
        self, app: FastAPI, listener: socket.socket, announce: bool = False, unix: UnixListener | None = None
    ) -> None:
        self._gateway: Gateway = app.state.gateway
        options = uvicorn_options(self._gateway)
        super().__init__(
            uvicorn.Config(
                app, lifespan="on", log_config=None, access_log=False, server_header=False,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS, **options,
            )
        )  # fmt: skip
        self._listener, self._unix = listener, unix
        self._announces = announce
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain_task: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then say where it is."""
        self._loop = asyncio.get_running_loop()
        parent = self._gateway.settings.parent_fd
        if parent is not None:
            self._loop.add_reader(parent, self._parent_moved, parent)
        await super().startup(sockets)
        self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first SIGTERM, end at everything else; the exit code stays 0."""
        if sig != signal.SIGTERM or self._gateway.draining or self._loop is None:
            if self._gateway.draining and self._loop is not None:
                self._loop.call_soon_threadsafe(self._gateway.registry.kill)  # who asks twice will not wait for work
            self.force_exit = self.force_exit or self.should_exit
            self.should_exit = True
            return
        self._gateway.draining = True
        log.info("draining", extra={"sessions": len(self._gateway.registry.sessions)})
        self._loop.call_soon_threadsafe(self._start_drain)

    def _start_drain(self) -> None:
        self._drain_task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        """Exit when nobody is left, or when the time for it is over."""
        end = time.monotonic() + self._gateway.settings.drain_seconds
        while self._gateway.registry.sessions and time.monotonic() < end:
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        self.should_exit = True

    def _parent_moved(self, fd: int) -> None:
        if os.read(fd, 4096):
            return
        asyncio.get_running_loop().remove_reader(fd)
        log.info("the parent process has ended")
        self.should_exit = True

    def _announce(self) -> None:
        url, ready_fd = url_of(self._listener, self._gateway.settings), self._gateway.settings.ready_fd
        unix = {"unix": self._unix.address} if self._unix is not None else {}
        line = json.dumps({"url": url, "pid": os.getpid()} | unix)
        print(line if self._announces else f"telegrad serves at {' and '.join([url, *unix.values()])}", flush=True)
        if ready_fd is not None:
            os.write(ready_fd, line.encode() + b"\n")
            if ready_fd not in (sys.stdout.fileno(), sys.stderr.fileno()):
                os.close(ready_fd)


def serve(
    app: FastAPI, listener: socket.socket, announce: bool = False, unix: UnixListener | None = None
) -> None:  # fmt: skip
    """Serve until a signal or the parent's end."""
    listeners = [listener] if unix is None else [listener, unix.socket]
    GatewayServer(app, listener, announce, unix).run(listeners)
