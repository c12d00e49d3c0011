"""Run the benchmarks: ``python -m benchmarks [--device cuda] [--save NAME] [--no-install]``."""

from __future__ import annotations

import argparse
import os
import sys

TUNED_BY = ("OPENBLAS_", "MKL_", "OMP_")
"""Variables by which a shell may hold one side's libraries to fewer instructions or threads than the machine has."""


def main() -> int:
    """Measure everything and print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    parser.add_argument("--no-install", action="store_true", help="leave out the size of a fresh install")
    options = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(TUNED_BY)]:
        del os.environ[name]  # both sides choose for themselves
    import telegrad as tg

    from . import install, training, wire
    from .measure import about, save, without_goal

    with tg.connect(devices="cuda:0" if options.device == "cuda" else "cpu") as connection:
        figures = [*wire.run(tg), *training.run(tg, options.device)]
        assert connection._server is not None
        with tg.connect(connection._server.pages):
            figures += wire.run(tg, wire.TCP)
    figures += install.run(not options.no_install)
    if options.device != "cpu":
        figures = [without_goal(each) for each in figures]  # the goals are for the CPU backend over loopback
    for each in figures:
        print(each.row())
    if options.save:
        save(options.save, figures, **about(options.device))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
