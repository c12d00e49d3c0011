"""Two checkouts side by side: ``python -m benchmarks.compare --base DIR [--device cuda:0] [--tcp] [--save NAME]``.

A process of each checkout measures the same probes in turn, so that whatever else the machine does meets both. A figure
is the ratio of this checkout's time to the other's, one ratio a round, with its quartiles. Run it with this checkout as
the base, too: that shows how far ratios are from 1 by noise alone. Each connects to a private server, as that checkout
does it, or over TCP with ``--tcp``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from .measure import Figure, about, figure, save

HERE = Path(__file__).resolve().parents[1]
PROBES = (
    "submit", "end_to_end", "round_trip", "round_trip_tail", "upload", "download", "add", "add_with_gradient",
    "malloc_free", "mlp_step", "mlp_new_batch", "gpt_step",
)  # fmt: skip
SLOWER = 1.03
"""The largest ratio that counts as no slower."""


class Checkout:
    """A process that measures with the code of one checkout."""

    def __init__(self, tree: Path, device: str, over: str) -> None:
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        kept = [entry for entry in inherited if entry and not entry.startswith(str(HERE))]
        path = os.pathsep.join([f"{tree}/client", str(tree), *kept])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "benchmarks/probes.py"), device, over],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tree,
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        )  # fmt: skip

    def sample(self, probe: str, repeats: int) -> float:
        """The median of some samples, in microseconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(probe, repeats, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the probes ended with status {self._process.wait()}; their error stands above")
        return statistics.median(json.loads(line))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run(base: Path, device: str, probes: list[str], rounds: int, over: str = "private") -> list[Figure]:
    """One figure a probe."""
    ours, theirs = Checkout(HERE, device, over), Checkout(base, device, over)
    try:
        return [_compare(ours, theirs, probe, rounds) for probe in probes]
    finally:
        ours.close()
        theirs.close()


def _compare(ours: Checkout, theirs: Checkout, probe: str, rounds: int) -> Figure:
    ours.sample(probe, 1)
    theirs.sample(probe, 1)
    pairs = []
    for turn in range(rounds):
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        times = {checkout: checkout.sample(probe, 3) for checkout in order}
        pairs.append((times[ours], times[theirs]))
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    return figure(
        probe, "x base", [a / b for a, b in pairs], at_most=SLOWER,
        baseline=f"{mine:.2f} us, base {other:.2f} us", us=mine, base_us=other,
    )  # fmt: skip


def main() -> int:
    """Print the table; 1 where something is slower."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--base", required=True, help="the other checkout")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--tcp", action="store_true", help="connect over TCP, whatever a private server is used by")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", default="", help="a part of the names of the probes to run")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    probes = [probe for probe in PROBES if options.only in probe]
    figures = run(
        Path(options.base).resolve(), options.device, probes, options.rounds, "tcp" if options.tcp else "private"
    )
    for measured in figures:
        print(measured.row(), flush=True)
    if options.save:
        save(options.save, figures, **about("cuda" if options.device.startswith("cuda") else "cpu"))
    return int(any(measured.met is False for measured in figures))


if __name__ == "__main__":
    sys.exit(main())
