"""``python -m tests.soak``: a server and clients for an hour; a report of what grew. See ``--help``.

The server has two workers: one lives all the time and is measured, the other one is killed now and then. The first
ten minutes are not judged, of a short run the first half: tables that are bounded fill, foremost that of the worker's
plans, for which clients bring new shapes all the time. The exit status is 1 where something grew.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil

from tests.end_to_end.server_process import ServerProcess
from tests.transport.waiting import wait_until

from .trend import trend_of

SETTINGS = {
    "TELEGRAD_LEASE_SECONDS": "2", "TELEGRAD_SESSION_QUOTA_BYTES": str(64 << 20), "TELEGRAD_INSTRUCTION_SECONDS": "600",
    "TELEGRAD_MAX_WORKERS": "2", "TELEGRAD_LOG_LEVEL": "ERROR",
}  # fmt: skip
SAMPLE_SECONDS = 5.0
CLIENT_LIFE_SECONDS = 20.0
"""After about so long a client is killed."""
WORKER_LIFE_SECONDS = 120.0
"""After about so long the second worker is killed."""
FILLING_SECONDS = 600.0
"""For so long tables fill."""
MIB = float(1 << 20)
ALLOWED = {"rss": 8 * MIB, "fds": 2.0, "threads": 1.0, "reserved": 8 * MIB}
"""By what a process may have grown over the time that is judged. RSS has besides a twentieth of what it was."""


class Clients:
    """Some processes of clients, which are killed and replaced; they write what they live into one file."""

    def __init__(self, url: str, count: int, rng: random.Random, lines: IO[str]) -> None:
        self._url, self._rng, self._lines = url, rng, lines
        self.killed = 0
        self._running = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.soak.client", self._url, str(self._rng.random())]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": self._lines, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, text=True, **streams)

    def kill_one(self) -> None:
        """Kill any client, in whatever it does, and start another."""
        place = self._rng.randrange(len(self._running))
        self._running[place].kill()
        self._running[place].wait()
        self.killed += 1
        self._running[place] = self._start()

    def end(self) -> Counter[str]:
        """Let all end in good order; how often each kind of life was lived."""
        for client in self._running:
            assert client.stdin is not None
            client.stdin.close()
        for client in self._running:
            client.wait()
        self._lines.seek(0)
        return Counter(line.strip() for line in self._lines)


def kill_worker(server: ServerProcess, number: int) -> bool:
    """Kill a worker, if it serves."""
    devices = [device for device in server.get("/v1/devices") if device["worker"] == number]
    if not devices or not devices[0]["pid"]:
        return False
    psutil.Process(devices[0]["pid"]).kill()
    return True


def sample(server: ServerProcess, worker: psutil.Process) -> dict[str, float]:
    """What the gateway and the worker hold."""
    gateway = psutil.Process(server.process.pid)
    counts: dict[str, float] = {}
    for name, process in (("gateway", gateway), ("worker", worker)):
        with process.oneshot():
            counts |= {f"{name} rss": process.memory_info().rss, f"{name} fds": process.num_fds()}
            counts[f"{name} threads"] = process.num_threads()
    stats = server.get("/memory_stats", params={"device": "worker0/cpu"})
    counts["worker reserved"] = next(iter(stats.values()))["reserved_bytes.all.current"]
    return counts


def soak(seconds: float, clients: int, seed: int, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Run for so long; the report. What can be said so far is saved with each sample."""
    rng = random.Random(seed)
    samples: list[tuple[float, dict[str, float]]] = []
    with (
        ServerProcess(TELEGRAD_DEVICES="cpu;cpu", **SETTINGS) as server,
        tempfile.TemporaryFile("a+") as lines,
    ):
        lasting = server.worker_process(0)
        people = Clients(server.url, clients, rng, lines)
        begin = time.monotonic()
        next_kill, next_crash, crashes = CLIENT_LIFE_SECONDS, WORKER_LIFE_SECONDS, 0
        while (now := time.monotonic() - begin) < seconds:
            if now >= next_kill:
                people.kill_one()
                next_kill = now + rng.expovariate(1 / CLIENT_LIFE_SECONDS)
            if now >= next_crash:
                crashes += kill_worker(server, 1)
                next_crash = now + rng.uniform(0.5, 1.5) * WORKER_LIFE_SECONDS
            samples.append((now, sample(server, lasting)))
            save(judge(samples, seconds) | {"is_over": False})
            time.sleep(SAMPLE_SECONDS)
        lives = people.end()
        wait_until(lambda: server.sessions == 0, "the last sessions end with their leases")
        left = server.held_on("worker0/cpu")
        is_first = lasting.is_running()
    report = judge(samples, seconds)
    report |= {
        "is_over": True, "seed": seed, "clients": clients, "lives": dict(lives), "killed_clients": people.killed,
        "killed_workers": crashes, "left_bytes": left, "lasting_worker_lived": is_first,
    }  # fmt: skip
    report["passed"] = report["passed"] and left == 0 and is_first
    return report


def judge(samples: list[tuple[float, dict[str, float]]], seconds: float) -> dict[str, Any]:
    """The trend of everything that was counted, after the time in which tables fill."""
    begin = min(FILLING_SECONDS, seconds / 2)
    judged = [(then, counts) for then, counts in samples if then >= begin] or samples[-1:]
    trends: dict[str, Any] = {}
    for name in judged[0][1]:
        series = [(then, counts[name]) for then, counts in judged]
        kind = name.partition(" ")[2]
        trend = trend_of(series, ALLOWED[kind] + (series[0][1] / 20 if kind == "rss" else 0.0))
        trends[name] = {**trend._asdict(), "is_flat": trend.is_flat}
    return {
        "seconds": seconds, "judged_seconds": judged[-1][0] - judged[0][0], "samples": len(judged), "trends": trends,
        "passed": all(trend["is_flat"] for trend in trends.values()),
        "series": [[round(then), *counts.values()] for then, counts in samples[:: len(samples) // 120 + 1]],
    }  # fmt: skip


def main() -> None:
    """Run, print and save the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--save", type=Path, default=Path("build/soak.json"), help="the report, as JSON")
    options = parser.parse_args()
    options.save.parent.mkdir(parents=True, exist_ok=True)

    def save(report: dict[str, Any]) -> None:
        options.save.write_text(json.dumps(report, indent=1))

    report = soak(options.seconds, options.clients, options.seed, save)
    save(report)
    for name, trend in report["trends"].items():
        verdict = "flat" if trend["is_flat"] else "GROWS"
        print(f"{name:<18} {trend['start']:>14,.0f} -> {trend['end']:>14,.0f} {trend['growth']:>+14,.0f}  {verdict}")
    verdict = "passed" if report["passed"] else "FAILED"
    print(
        f"{sum(report['lives'].values())} lives, {report['killed_clients']} clients and {report['killed_workers']} "
        f"workers killed, {report['left_bytes']} bytes left; {verdict}"
    )
    sys.exit(not report["passed"])


if __name__ == "__main__":
    main()
