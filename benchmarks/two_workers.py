"""Two clients at once, each a process with a session on a worker of its own, against either of them alone.

``python -m benchmarks.two_workers [--devices "cuda:0;cuda:1"] [--only WORD] [--save NAME]``; ``"cpu;cpu"`` tries it
with a small model. A figure is the sum of both clients' rates, each as a share of its own rate alone in the same round:
2 where neither notices the other. Beside it stands what a step costs the gateway, through which both pass.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from . import models
from .measure import Figure, figure, save
from .models import GPT_2, GPT_SMALL, Setting

ROUNDS = 7
SECONDS = 3.0
GOAL = 1.95
WARM_STEPS = 30
STEPS_PER_READ = 10
"""The loss is read after so many steps, as a training would that reports it."""
GPT_TINY = Setting("GPT d32, 2 layers, T16 B4, fp32", 2, 32, 2, 16, 4)
SETTINGS = {setting.name: setting for setting in (GPT_SMALL, GPT_2, GPT_TINY)}


class Client:
    """A process with a session, which trains for as long as it is told."""

    def __init__(self, url: str, name: str, device: str) -> None:
        command = [sys.executable, "-m", "benchmarks.two_workers", "--client", url, name, device]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]
        self.worker: int = self._answer()["worker"]

    def begin(self, seconds: float) -> None:
        """Train for so long."""
        print(seconds, file=self._process.stdin, flush=True)

    def end(self) -> dict[str, float]:
        """What was done: ``rate`` in steps a second, ``sent`` and ``received`` in bytes a step."""
        return self._answer()

    def run(self, seconds: float) -> dict[str, float]:
        """Train while nobody else does."""
        self.begin(seconds)
        return self.end()

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client ended with status {self._process.wait()}; its error stands above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve_client(url: str, name: str, device: str) -> None:
    """Be the process of a ``Client``: a number of seconds a line in, a line of JSON out."""
    import telegrad as tg

    with tg.connect(url) as connection:
        step = models.gpt(tg, SETTINGS[name], device)
        for _ in range(WARM_STEPS):
            step().item()
        print(json.dumps({"worker": connection.worker}), flush=True)
        for line in sys.stdin:
            print(json.dumps(_train(tg, step, float(line))), flush=True)


def _train(tg: Any, step: models.Step, seconds: float) -> dict[str, float]:
    before, begin, steps = tg.wire_stats(), time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(STEPS_PER_READ):
            loss = step()
        loss.item()
        steps += STEPS_PER_READ
    passed, after = time.perf_counter() - begin, tg.wire_stats()
    sent, received = after.bytes_sent - before.bytes_sent, after.bytes_received - before.bytes_received
    return {"rate": steps / passed, "sent": sent / steps, "received": received / steps}


def measure(url: str, gateway: int, name: str, device: str, seconds: float) -> Figure:
    """The figure of one model; ``gateway`` is the number of the gateway's process."""
    clients = [Client(url, name, device) for _ in range(2)]
    try:
        if clients[0].worker == clients[1].worker:
            raise RuntimeError(f"both sessions are on worker {clients[0].worker}")
        rounds = [_round(clients, partial(_busy_seconds, gateway), seconds) for _ in range(ROUNDS + 1)][1:]
    finally:
        for client in clients:
            client.close()
    columns = [list(column) for column in zip(*rounds, strict=True)]
    alone, together, gateway_us, share, sent, received = map(statistics.median, columns[1:])
    note = (
        f"alone {alone:.2f} steps/s, together {together:.2f} each; gateway {gateway_us:.0f} us a step, "
        f"busy {share:.0%}; {sent:.0f} bytes up and {received:.0f} down a step"
    )
    return figure(
        name, "x one", columns[0], at_least=GOAL if device == "cuda" else None, baseline=note,
        alone_steps_per_second=alone, together_steps_per_second=together, gateway_us_per_step=gateway_us,
        gateway_busy=share, bytes_sent_per_step=sent, bytes_received_per_step=received,
    )  # fmt: skip


def _round(clients: list[Client], busy: Any, seconds: float) -> tuple[float, ...]:
    """Both rates together as shares of those alone, and what stands beside the figure, in the order of its note."""
    alone = [client.run(seconds)["rate"] for client in clients]
    before, begin = busy(), time.perf_counter()
    for client in clients:
        client.begin(seconds)
    ran = [client.end() for client in clients]
    used, passed = busy() - before, time.perf_counter() - begin
    rates = [one["rate"] for one in ran]
    gained = sum(both / one for both, one in zip(rates, alone, strict=True))
    share = used / passed
    return (
        gained, statistics.mean(alone), statistics.mean(rates), share / sum(rates) * 1e6, share,
        statistics.mean(one["sent"] for one in ran), statistics.mean(one["received"] for one in ran),
    )  # fmt: skip


def _busy_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_workers", description=__doc__)
    parser.add_argument("--devices", default="cuda:0;cuda:1", help="of the two workers")
    parser.add_argument("--only", default="", help="a part of the name of what to run")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each measurement takes")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        serve_client(*options.client)
        return 0
    figures = []
    for measured in run(options.devices, options.only, options.seconds):
        print(measured.row(), flush=True)
        figures.append(measured)
    if options.save:
        save(options.save, figures, devices=options.devices, cores=str(os.cpu_count()))
    return int(any(measured.met is False for measured in figures))


def run(devices: str, only: str, seconds: float) -> Any:
    """The figures of all models whose names have ``only`` in them, one by one, on a server of our own."""
    from telegrad._session.private_server import PrivateServer

    device = "cpu" if "cuda" not in devices else "cuda"
    settings = [GPT_TINY] if device == "cpu" else [GPT_SMALL, GPT_2]
    server = PrivateServer(devices)
    try:
        for setting in settings:
            if only in setting.name:
                yield measure(server.url, server._process.pid, setting.name, device, seconds)
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
