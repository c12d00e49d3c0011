"""``python -m tests.hostile.victim URL``: for every line of input, measure round trips and write their times as JSON.

A line has the most trips and the most seconds.
"""

from __future__ import annotations

import json
import sys
import time

import telegrad as tg


def main() -> None:
    """Measure as often as it is asked."""
    with tg.connect(sys.argv[1]):
        x = tg.ones(4)
        for line in sys.stdin:
            trips, seconds = line.split()
            times: list[float] = []
            end = time.perf_counter() + float(seconds)
            while len(times) < int(trips) and time.perf_counter() < end:
                begin = time.perf_counter()
                assert (x + 1).sum().item() == 8.0
                times.append(time.perf_counter() - begin)
            print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
