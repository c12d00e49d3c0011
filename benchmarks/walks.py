"""Which files of the server one step of a user's program passes, and how often the way changes between two files.

``python -m benchmarks.walks [--tree DIR] [--base DIR] [--show] [--save NAME]``. A private server runs a warm program on
the CPU; for one step its gateway and its worker write down the file of every Python function that they enter. A file
counts once, a change is a call into another file than the one before, and the two processes' ways are added. Shows
nothing about time. ``--tree`` walks through another checkout, ``--base`` also through a second one, for comparison.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
WARM_UP = 40
QUIET_SECONDS = 0.7
"""After this time the client has acknowledged everything, and no timer of its own sends any more."""

TRACER = '''
"""Imported by every Python process that has this folder on its path: traces calls between two signals."""
import json, os, signal, sys

ROOT = os.environ["WALK_ROOT"]
OUT = os.path.join(os.environ["WALK_OUT"], f"{os.getpid()}.json")
passed = []


def note(frame, event, argument):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(ROOT):
        passed.append(file[len(ROOT):])


def begin(*_):
    passed.clear()
    sys.setprofile(note)


def end(*_):
    sys.setprofile(None)
    with open(OUT + ".part", "w") as file:
        json.dump(passed, file)
    os.rename(OUT + ".part", OUT)


signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
'''


class Server:
    """The processes of the private server that this process has started."""

    def __init__(self, folder: Path) -> None:
        gateways = [pid for pid in _children(os.getpid()) if "server" in _command(pid)]
        self._pids = gateways + [p for gateway in gateways for p in _children(gateway) if "worker" in _command(p)]
        self._folder = folder

    def walk(self, step: Callable[[], Any]) -> list[list[str]]:
        """The files that each process passes while ``step`` runs and until the server has nothing left to do."""
        time.sleep(QUIET_SECONDS)
        self._signal(signal.SIGUSR1)
        time.sleep(QUIET_SECONDS)
        step()
        time.sleep(QUIET_SECONDS)
        self._signal(signal.SIGUSR2)
        return [self._read(self._folder / f"{pid}.json") for pid in self._pids]

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            os.kill(pid, number)

    @staticmethod
    def _read(path: Path) -> list[str]:
        while not path.exists():
            time.sleep(0.01)
        passed: list[str] = json.loads(path.read_text())
        path.unlink()
        return passed


def _children(parent: int) -> Iterator[int]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            yield int(stat.parent.name)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _walks(folder: Path) -> dict[str, list[list[str]]]:
    """The walks of three steps of a program that was warmed up; runs in a process that has the tracer."""
    import telegrad as tg

    tg.connect(devices="cpu")
    server = Server(folder)
    x, y, target = tg.randn(8, 8), tg.randn(8, 8), tg.randint(0, 4, (8,))
    model = tg.nn.Sequential(tg.nn.Linear(8, 8), tg.nn.ReLU(), tg.nn.Linear(8, 4))
    optimizer = tg.optim.SGD(model.parameters(), lr=1e-3)
    kept: dict[str, Any] = {}

    def add() -> None:
        kept["sum"] = x + y

    def forward() -> None:
        optimizer.zero_grad()
        kept["loss"] = tg.nn.functional.cross_entropy(model(x), target)

    def step() -> None:
        kept["loss"].backward()
        optimizer.step()

    for _ in range(WARM_UP):
        add()
        forward()
        step()
        x.numpy()
    walks = {"x + y": server.walk(add)}
    forward()
    walks["backward(); step()"] = server.walk(step)
    walks["t.numpy()"] = server.walk(x.numpy)
    return walks


def measure(tree: Path) -> dict[str, list[list[str]]]:
    """The walks through a checkout, measured in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(TRACER)
        path = os.pathsep.join([folder, f"{tree}/client", str(tree)])
        output = subprocess.run(
            [sys.executable, __file__, "--walk", folder],
            env={**os.environ, "PYTHONPATH": path, "WALK_ROOT": f"{tree}/server/", "WALK_OUT": folder},
            stdout=subprocess.PIPE, text=True, check=True, cwd=tree,
        ).stdout  # fmt: skip
    walks: dict[str, list[list[str]]] = json.loads(output)
    return walks


def summary(processes: list[list[str]]) -> dict[str, int]:
    """How many files, changes between files, and calls a walk has."""
    calls = [name for process in processes for name in process]
    changes = sum(sum(1 for _ in groupby(process)) - 1 for process in processes if process)
    return {"files": len(set(calls)), "changes": changes, "calls": len(calls)}


def main() -> None:
    """Print files, changes and calls of each walk."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walks", description=__doc__)
    parser.add_argument("--tree", type=Path, default=HERE, help="the checkout to walk through")
    parser.add_argument("--base", type=Path, help="another checkout, to compare with")
    parser.add_argument(
        "--show", action="store_true", help="also print the files in the order in which they are passed"
    )
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    parser.add_argument("--walk", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        print(json.dumps(_walks(options.walk)))
        return
    trees = {"now": options.tree, **({"before": options.base} if options.base else {})}
    walks = {name: measure(tree.resolve()) for name, tree in trees.items()}
    for label, steps in walks.items():
        for name, processes in steps.items():
            print(f"{label} {name}: " + ", ".join(f"{count} {what}" for what, count in summary(processes).items()))
            for process in processes if options.show else ():
                print("   ", " ".join(file for file, _ in groupby(process)))
    if options.save:
        figures = {label: {name: summary(walk) for name, walk in steps.items()} for label, steps in walks.items()}
        record = {"date": datetime.date.today().isoformat(), "python": platform.python_version(), **figures}
        (HERE / f"benchmarks/results/{options.save}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
