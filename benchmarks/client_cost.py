"""What a call costs the client in C and in Python: ``python -m benchmarks.client_cost [--save NAME]``.

Loops of small operations run on a private server's CPU, with the one and the other in turn. What is measured is CPU
time of the program's thread, which also sends what is queued; the wait for the result at a loop's end is left out.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, Final

from .measure import Figure, figure, save, shown

TURNS: Final = 1000
"""Each turn of a loop calls two operations."""
ROUNDS: Final = 25


def _loops(tg: Any) -> dict[str, Callable[[], Any]]:
    a, b = tg.full((8, 8), 0.5), tg.full((8, 8), 0.25)
    leaf = tg.full((8, 8), 0.5, requires_grad=True)

    def loop(x: Any, step: Callable[[Any], Any]) -> Callable[[], Any]:
        def work() -> Any:
            value = x
            for _ in range(TURNS):
                value = step(value)
            return value

        return work

    return {
        "x * a + b": loop(a, lambda x: x * a + b),
        "x * a + b, recorded": loop(leaf, lambda x: x * leaf + b),
        "x * 0.5 + 1": loop(a, lambda x: x * 0.5 + 1),
        "sin(x).neg()": loop(a, lambda x: tg.sin(x).neg()),
        "softmax(x, -1).view(8, 8)": loop(a, lambda x: tg.softmax(x, -1).view(8, 8)),
    }


def measured(tg: Any) -> Iterator[Figure]:
    """One figure a loop: the time in C, of Python's, one ratio a round."""
    from telegrad._native import binding
    from telegrad._ops import call, functions

    if binding.call is call.call:
        raise SystemExit("client_cost: there is no compiler of C")

    def sample(work: Callable[[], Any], run: Any) -> float:
        vars(functions)["call"] = run
        begin = time.thread_time()
        result = work()
        taken = time.thread_time() - begin
        result.detach().sum().item()
        return taken / (2 * TURNS) * 1e6

    for name, work in _loops(tg).items():
        pairs = [(sample(work, binding.call), sample(work, call.call)) for _ in range(ROUNDS + 3)][3:]
        ours, theirs = (median(column) for column in zip(*pairs, strict=True))
        note = f"{ours:.2f} us, in Python {theirs:.2f} us"
        yield figure(name, "x Python", [a / b for a, b in pairs], baseline=note, us=ours, python_us=theirs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_cost", description=__doc__)
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    import telegrad as tg

    with tg.connect(devices="cpu"):
        gc.freeze()
        figures = shown(measured(tg))
    if options.save:
        save(options.save, figures, device="cpu")
    return 0


if __name__ == "__main__":
    sys.exit(main())
