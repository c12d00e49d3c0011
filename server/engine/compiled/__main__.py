"""``python -m server.engine.compiled [PROCESSES]``: compile the loops into the cache, unless they are never used."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from server.engine import compiled


def _load_side_by_side(chains: Iterable[Iterable[str]]) -> None:
    with ProcessPoolExecutor(int(sys.argv[1]), get_context("spawn")) as pool:
        list(pool.map(compiled.load_chains, [[chain] for chain in chains]))


if __name__ == "__main__":
    if os.environ.get(compiled.SETTING) != "never":
        os.nice(10)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)  # a worker that starts this ignores them
        compiled.compile_all(_load_side_by_side if len(sys.argv) > 1 else compiled.load_chains)
