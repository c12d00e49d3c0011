"""What the wire costs: submitting, round trips, uploads and downloads, beside a raw loopback socket.

``python -m benchmarks.wire [--device cpu] [--save NAME]`` measures a Unix socket, as a private server is used;
``python -m benchmarks`` measures TCP, too.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
from typing import Any, Final, NamedTuple

import numpy as np

from .measure import Figure, about, figure, percentile, repeat, save, shown

OPERATIONS = 2000
MEBI = 1 << 20


class Goals(NamedTuple):
    """Microseconds of a round trip, and GiB/s of a transfer, that are wanted of a kind of connection."""

    p50: float
    p99: float
    up: float
    down: float


UNIX: Final = Goals(90, 150, 4, 4)
TCP: Final = Goals(150, 250, 0.95, 1.6)


def run(tg: Any, goals: Goals = UNIX, large_bytes: int = 1 << 30) -> list[Figure]:
    """All figures of this module on the current session."""
    over = "" if goals is UNIX else ", TCP"
    figures = [] if over else _operations(tg)
    figures += _round_trips(tg, goals, over)
    for nbytes, repeats in ((64 * MEBI, 7), (large_bytes, 3)):
        figures += _transfers(tg, nbytes, repeats, goals, over)
    return figures


def _operations(tg: Any) -> list[Figure]:
    a, b = tg.randn(8, 8), tg.randn(8, 8)
    submit, whole = [], []
    for _ in range(15):
        tg.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(OPERATIONS):
            a + b
        middle = time.perf_counter()
        tg.cuda.synchronize()
        submit.append((middle - begin) / OPERATIONS * 1e6)
        whole.append((time.perf_counter() - begin) / OPERATIONS * 1e6)
    return [
        figure("submit one small op", "us", submit[2:], at_most=5, baseline="SkyTorch 27-32 us"),
        figure(
            "2,000 small ops and a synchronisation, per op", "us", whole[2:], at_most=8, baseline="SkyTorch 29-32 us"
        ),
    ]


def _round_trips(tg: Any, goals: Goals, over: str) -> list[Figure]:
    scalar = tg.randn(())
    samples = [s * 1e6 for s in repeat(scalar.item, 3000, warmup=300)]
    medians = [percentile(samples[i::10], 0.5) for i in range(10)]
    tails = [percentile(samples[i::10], 0.99) for i in range(10)]
    return [
        figure(f"scalar round trip, p50{over}", "us", medians, at_most=goals.p50, baseline="SkyTorch 420-500 us"),
        figure(f"scalar round trip, p99{over}", "us", tails, at_most=goals.p99, baseline="SkyTorch 530-760 us"),
    ]


def _transfers(tg: Any, nbytes: int, repeats: int, goals: Goals, over: str) -> list[Figure]:
    data = np.random.default_rng(0).random(nbytes // 8)
    raw = nbytes / 2**30 / np.median(repeat(lambda: _raw_tcp(data), repeats))
    kept: list[Any] = [None]

    def upload() -> None:
        kept[0] = None
        kept[0] = tg.from_numpy(data)
        tg.cuda.synchronize()

    up = [nbytes / 2**30 / s for s in repeat(upload, repeats)]
    down = [nbytes / 2**30 / s for s in repeat(lambda: kept[0].numpy(), repeats)]
    label = f"{nbytes // MEBI} MiB{over}"
    ratio = f"raw TCP {raw:.2f} GiB/s"
    return [
        figure(f"upload {label}", "GiB/s", up, at_least=goals.up, baseline=f"{np.median(up) / raw:.2f} of {ratio}"),
        figure(
            f"download {label}", "GiB/s", down, at_least=goals.down, baseline=f"{np.median(down) / raw:.2f} of {ratio}"
        ),
    ]


def _raw_tcp(data: np.ndarray[Any, Any]) -> None:
    """The same bytes over a bare loopback socket between two threads, which release the GIL while they copy."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        receiver = threading.Thread(target=_receive, args=(listener, data.nbytes))
        receiver.start()
        with socket.create_connection(listener.getsockname()) as sender:
            sender.sendall(memoryview(data).cast("B"))
            receiver.join()


def _receive(listener: socket.socket, nbytes: int) -> None:
    connection, _ = listener.accept()
    with connection:
        buffer = bytearray(1 << 20)
        while nbytes > 0:
            nbytes -= connection.recv_into(buffer)


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    import telegrad as tg

    with tg.connect(devices=options.device):
        figures = shown(run(tg))
    if options.save:
        save(options.save, figures, **about(options.device))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
