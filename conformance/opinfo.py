"""PyTorch's operator database on telegrad, through a client and a server: ``make opinfo``.

``ARGS="--only linalg"`` runs the entries whose names match, ``--device cuda`` runs on a GPU. Several processes share
the work, each with a session of its own on one server; several servers compile a GPU's kernels side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

from benchmarks.measure import RESULTS

from .scope import reason

_PROCESSES = 2
Outcome = tuple[str, str, dict[str, str]]
Tell = Callable[[str, dict[str, str]], None]


def _check(number: int) -> tuple[str, str, dict[str, str]]:
    from .entry import check

    info = _entries()[number]
    return info.name, info.variant_test_name, check(info)


def _entries() -> list[Any]:
    from tests.ops.database import op_db

    return list(op_db)


def _join(url: str, device: str) -> None:
    import telegrad

    telegrad.connect(url)
    telegrad.set_default_device(device)
    telegrad.backends.cudnn.allow_tf32 = False  # results are held against those of a CPU


def _numbers(only: str) -> list[int]:
    entries = enumerate(_entries())
    return [number for number, info in entries if re.search(only, info.name) and not reason(info.name)]


def run(only: str, device: str, processes: int, servers: int, tell: Tell) -> dict[str, dict[str, str]]:
    """Check all entries that match; results by entry, then by aspect. ``tell`` is called with each as it comes."""
    numbers = _numbers(only)
    results: dict[str, dict[str, str]] = {}

    def note(outcome: Outcome) -> None:
        name, variant, aspects = outcome
        results[f"{name}{'.' if variant else ''}{variant}"] = aspects
        tell(f"{name}{'.' if variant else ''}{variant}", aspects)

    with ThreadPoolExecutor(servers) as threads:
        shares = [numbers[k::servers] for k in range(servers)]
        for done in [threads.submit(_on_server, share, device, processes, note) for share in shares]:
            done.result()
    return dict(sorted(results.items()))


def _on_server(numbers: list[int], device: str, processes: int, note: Callable[[Outcome], None]) -> None:
    from telegrad._session.private_server import PrivateServer

    server = PrivateServer(None if device == "cpu" else device)
    try:
        with ProcessPoolExecutor(processes, get_context("spawn"), _join, (server.url, device)) as pool:
            for outcome in pool.map(_check, numbers, chunksize=4):
                note(outcome)
    finally:
        server.stop()


def family_of(entry: str) -> str:
    """The namespace of an entry's name."""
    parts = entry.split(".")
    known = ("linalg", "fft", "special", "masked", "signal", "nn")
    return "nn.functional" if parts[0] == "nn" else parts[0] if parts[0] in known else "torch"


def print_table(results: dict[str, dict[str, str]]) -> int:
    """Print a line per family and what failed; return how many entries passed whole."""
    families: dict[str, list[bool]] = defaultdict(list)
    for entry, aspects in results.items():
        families[family_of(entry)].append(set(aspects.values()) <= {"passed"})
    for family, passed in sorted(families.items()):
        print(f"{family:<16} {sum(passed):>4} of {len(passed):<4} {sum(passed) / len(passed):>6.1%}")
    whole = sum(map(sum, families.values()))
    print(f"{'all':<16} {whole:>4} of {len(results):<4} {whole / max(len(results), 1):>6.1%}")
    return whole


def main() -> int:
    """Run the sweep; 1 if any entry in scope fails."""
    parser = argparse.ArgumentParser(prog="python -m conformance.opinfo", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=_PROCESSES, help="processes for each server")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--save", default="", help="name of a file under benchmarks/results")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what failed")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def tell(entry: str, aspects: dict[str, str]) -> None:
        for aspect, outcome in aspects.items():
            if options.verbose and outcome != "passed":
                print(f"{entry}  {aspect}: {outcome}", flush=True)

    results = run(options.only, options.device, options.processes, options.servers, tell)
    whole = print_table(results)
    if options.save:
        text = json.dumps({"device": options.device, "passed": whole, "entries": results}, indent=1)
        (RESULTS / f"{options.save}.json").write_text(text + "\n")
    return int(whole < len(results))


if __name__ == "__main__":
    sys.exit(main())
