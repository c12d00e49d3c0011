"""A real gateway with a real worker, in a process of its own, whose engine is the stub: ``python gateway.py``.

Prints the port once it serves, and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading

import uvicorn

from server.gateway.app import create_app
from server.gateway.device_groups import DeviceGroup
from server.gateway.node import Node
from server.gateway.observability.metrics import Metrics
from server.gateway.observability.observer import Observer
from server.gateway.observability.tracing import Tracing
from server.gateway.sessions import Registry
from server.gateway.settings import Settings
from server.gateway.stream import StreamProtocol


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(sockets[0].getsockname()[1] if sockets else 0, flush=True)


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _listeners() -> list[socket.socket]:
    """A free port, and the Unix socket that is wanted."""
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(os.environ["STUB_UNIX"])
    return [socket.create_server(("127.0.0.1", 0)), unix]


def main() -> None:
    host = os.environ.get("STUB_HOST", "tests.transport.stub:StubHost")
    lease = float(os.environ.get("STUB_LEASE", "60"))
    settings = Settings(lease_seconds=lease, devices=("cpu",))
    group = DeviceGroup(("cuda:0", "cpu"), ("0",)) if "STUB_GPU" in os.environ else DeviceGroup(("cpu",))
    registry = Registry(Node([group], host, "WARNING"), Observer(Metrics(), Tracing()))
    app = create_app(settings, registry)
    config = uvicorn.Config(
        app, port=0, ws=StreamProtocol, ws_max_size=8 << 20, loop=os.environ.get("STUB_LOOP", "uvloop"),
        ssl_certfile=os.environ.get("STUB_CERTIFICATE"), ssl_keyfile=os.environ.get("STUB_KEY"),
        ws_per_message_deflate=False, access_log=False, log_level="warning", http="httptools",
    )  # fmt: skip
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(_Server(config).serve(_listeners()))


if __name__ == "__main__":
    main()
