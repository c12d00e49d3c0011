"""What a worker process does from its options to its end."""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import math
import os
import signal
import socket
from collections.abc import Callable
from typing import Final

from server.allocator.upstream import host as host_upstream
from server.crash_notes import notes
from server.engine.autograd import graph_task
from server.engine.blas_threads import share_cores
from server.engine.device import cancellation, work
from server.engine.devices import begin_first_uses
from server.ipc import channel
from server.ipc.heartbeat import Heartbeat
from server.ipc.logs import configure_logs
from server.ipc.worker_environment import end_with_parent, on_one_stack
from server.session.programs import sequences
from server.worker import garbage
from server.worker.host_protocol import Host
from server.worker.loop import Worker
from server.worker.measures import Measures
from telegrad_protocol.errors import WorkerCrashedError

DEVICE_LOST: Final = 3
"""The exit status of a worker whose device is beyond use."""


def load_host(name: str) -> Callable[[list[str]], Host]:
    """Return the host class that ``module:class`` names."""
    module, _, attribute = name.partition(":")
    host: Callable[[list[str]], Host] = getattr(importlib.import_module(module), attribute)
    return host


def main(arguments: list[str]) -> None:
    """Serve the gateway at the other end of ``--fd`` until it is gone."""
    parser = argparse.ArgumentParser(description="telegrad worker process, started by the gateway")
    parser.add_argument("--fd", type=int, required=True, help="control channel")
    parser.add_argument("--devices", default="", help="separated by commas; all there are where empty")
    parser.add_argument("--host", default="server.worker.host:Host", help="engine to serve, module:class")
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--parent", type=int, help="process id of the gateway, without which the worker ends")
    parser.add_argument("--notes", type=int, help="file that says which function of an extension runs")
    parser.add_argument("--heartbeat", type=int, required=True, help="memory in which the gateway sees what goes on")
    parser.add_argument("--operation-work", type=float, default=math.inf, help="largest work of one operation")
    parser.add_argument("--graph-nodes", type=float, default=math.inf, help="largest graph of one backward pass")
    parser.add_argument("--compiled-variants", type=int, help="most variants of a session's programs")
    parser.add_argument("--slow-seconds", type=float, default=math.inf, help="from when on turns are told of")
    parser.add_argument("--cpu-memory", type=int, help="bytes that all tensors on the CPU may take")
    parser.add_argument("--without-cpu", action="store_true", help="sessions have no tensors on the CPU")
    options = parser.parse_args(arguments)
    if options.parent is not None:
        end_with_parent(options.parent)
    if options.notes is not None:
        notes.use(options.notes)
    configure_logs(options.log_level)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # sent to the whole group, they are for the gateway, which ends us
    control = socket.socket(fileno=options.fd)
    channel.prepare(control)
    heartbeat = Heartbeat(options.heartbeat)
    signal.signal(signal.SIGUSR1, lambda *_: cancellation.request(heartbeat.check))
    signal.siginterrupt(signal.SIGUSR1, False)
    host_upstream.most_bytes = options.cpu_memory
    host = load_host(options.host)([name for name in options.devices.split(",") if name])
    host.has_cpu = not options.without_cpu
    work.limit, graph_task.most_nodes = options.operation_work, options.graph_nodes
    if options.compiled_variants is not None:
        sequences.most_session_variants = options.compiled_variants
    worker = Worker(control, host, heartbeat, Measures(options.slow_seconds))
    begin_first_uses()
    share_cores()
    gc.freeze()  # modules and tables live as long as the process
    gc.set_threshold(*garbage.THRESHOLDS)
    gc.enable()
    try:
        on_one_stack(worker.run)
    except WorkerCrashedError:
        logging.shutdown()
        os._exit(DEVICE_LOST)  # an orderly end would wait for the device
