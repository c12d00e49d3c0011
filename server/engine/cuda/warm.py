"""Compile the usual kernels beforehand: ``python -m server.engine.cuda.warm [--architecture sm_90]``.

What networks do most, in the types that they do it in, is asked of the same factories that plans ask; their texts are
compiled into the kernel cache by several processes. Needs the compiler, and a GPU only to tell the architecture.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ProcessPoolExecutor

from telegrad_protocol.errors import TelegradError

from . import usual_files
from .runtime.compiler import compile_cubin, is_kept
from .runtime.launch import architecture

_NICENESS = 10


def _beside_others() -> int:
    """Return how many processes may compile beside a worker and its client.

    Two processors of a core share it: with one on half of them, less two cores, both others have a core of their own.
    """
    return max(len(os.sched_getaffinity(0)) // 2 - 2, 1)


def compile_all(texts: Iterable[tuple[str, tuple[str, ...]]], target: str, processes: int | None = None) -> int:
    """Compile what is not on the disk yet, with so many processes; how many texts that were."""
    cold = [(source, options) for source, options in texts if not is_kept(source, target, options)]
    if cold:
        # The compiler takes one text at a time in each process; a child has no use for threads or devices of this one.
        with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("fork")) as pool:
            for done in [pool.submit(compile_cubin, source, target, options) for source, options in cold]:
                done.result()
    return len(cold)


def _usual_texts(target: str) -> Collection[tuple[str, tuple[str, ...]]]:
    """Return the usual texts; what knows them takes a second to import, so it is not where they are all there."""
    found: Collection[tuple[str, tuple[str, ...]]] = (
        importlib.import_module("server.engine.cuda.usual_calls").usual_texts(target).texts
    )
    return found


def main() -> int:
    """Compile, and say how many kernels took how long."""
    parser = argparse.ArgumentParser(prog="python -m server.engine.cuda.warm", description=__doc__)
    parser.add_argument("--architecture", help="such as sm_90; that of this machine's first GPU by default")
    parser.add_argument("--nice", action="store_true", help="leave the processor to others where they want it")
    options = parser.parse_args()
    if options.nice:
        os.nice(_NICENESS)
    begin = time.perf_counter()
    try:
        target = options.architecture or architecture(0)
        known = usual_files.kept(target)
        if known:
            print(f"{known} kernels are usual, and all of them are there")
            return 0
        texts = _usual_texts(target)
        count = compile_all(texts, target, _beside_others() if options.nice else None)
        usual_files.note(target, texts)
    except TelegradError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    seconds = time.perf_counter() - begin
    print(f"{len(texts)} kernels are usual, {count} of them were compiled now, in {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
