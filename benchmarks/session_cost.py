"""What instructions cost a worker's session on a GPU that does nothing: ``python -m benchmarks.session_cost``.

No GPU is needed. Programs whose shapes change from step to step run once on a simulated GPU, and what their client
sends is written down. A session on a device whose kernels do nothing, but whose launches wait as those of a GPU do,
then executes it, pass after pass. What is measured is CPU time of decoding, dispatch, autograd, memory and launches,
without the driver. ``--factories`` adds what a GPU's kernels and the products of cuBLASLt are prepared by; what cuDNN
computes is then computed by NumPy, so that of images the other figures say more. ``--frames FILE`` keeps what was sent,
so that two checkouts execute the same. ``--calls`` counts calls of functions written in Python instead, which do not
vary with what else the machine does.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from server.session.session import Session
from server.worker import garbage
from server.worker.host import Host
from telegrad_protocol import messages, wire
from telegrad_protocol.programs.messages import RunProgram

from . import changing, cpu_steps, decoding, kinds
from .measure import Figure, figure, save
from .models import GPT_2, mlp

PASSES: Final = 6
_TINY = replace(GPT_2, width=96, vocabulary=256)
_TOKENS: Final = 48
_LENGTHS: Final = list(range(17, 65, 4))

Frames = list[tuple[int, bytes]]
Recorded = tuple[Frames, list[Frames]]
"""What a program sends before its first pass, and in each pass."""


def _decoding(lib: Any, device: str) -> Callable[[], None]:
    decoding.GPT_2 = _TINY  # type: ignore[attr-defined]
    decode = decoding.decoder(lib, device, 1)
    return lambda: decode(_TOKENS).tolist()


def _training(lib: Any, device: str) -> Callable[[], None]:
    cpu_steps.GPT_SMALL = replace(cpu_steps.GPT_SMALL, width=32, batch=2)  # type: ignore[attr-defined]
    step = cpu_steps.gpt_step(lib, _LENGTHS, device)

    def work() -> None:
        for _ in _LENGTHS:
            loss = step()
        loss.item()

    return work


def _compiled_token(lib: Any, device: str) -> Callable[[], None]:
    decoding.GPT_2 = _TINY  # type: ignore[attr-defined]
    step = decoding.static_decoder(lib, device, lib.compile)

    def work() -> None:
        for _ in range(_TOKENS):
            token = step()
        token.tolist()

    return work


def _compiled_training(lib: Any, device: str) -> Callable[[], None]:
    step = lib.compile(mlp(lib, device))

    def work() -> None:
        for _ in range(_TOKENS):
            loss = step()
        loss.item()

    return work


PROGRAMS: Final[dict[str, Callable[[Any, str], Callable[[], Any]]]] = {
    "decoding": _decoding,
    "lengths": _training,
    "images": changing.ROWS["U-Net on images of other sizes"][0],
    "small operations": changing.ROWS["2,000 small operations and one read"][0],
    "episodes": changing.ROWS["episodes of other lengths, an action at a time"][0],
    "a compiled token": _compiled_token,
    "a compiled step": _compiled_training,
    **kinds.PROGRAMS,
}


def record(path: Path, only: str = "") -> None:
    """Write down what programs send whose names hold a text. No session of this process may have met a GPU before."""
    import telegrad as tg
    from tests.support.node import SimulatedHost

    sent: list[tuple[int, bytes]] = []
    receive = Session.receive

    def noting(session: Session, kind: int, body: memoryview) -> None:
        sent.append((kind, bytes(body)))
        receive(session, kind, body)

    Session.receive = noting  # type: ignore[method-assign]
    recorded: dict[str, Recorded] = {}
    for name, make in PROGRAMS.items():
        if only not in name:
            continue
        sent.clear()
        with tg.connect(in_process=SimulatedHost()):
            work = make(tg, "cuda")
            tg.cuda.synchronize()
            before, passes = sent.copy(), []
            for _ in range(PASSES):
                sent.clear()
                work()
                passes.append(sent.copy())
            recorded[name] = before, passes
    path.write_bytes(msgspec.msgpack.encode(recorded))


def amount_of(frames: Frames) -> int:
    """Return how many programs are run in frames; where there are none, how many operations are called."""
    batches = [wire.decode_instructions(body) for kind, body in frames if kind == wire.BATCH]
    kinds = [one.__class__ for batch in batches for one in batch]
    return kinds.count(RunProgram) or kinds.count(messages.Call)


def execute(session: Session, frames: Frames) -> None:
    """Have a session execute frames as a worker does, and take its replies."""
    for kind, body in frames:
        session.receive(kind, memoryview(body))
        while session.has_work or session.waits or session.shows_memory:
            if session.has_work:
                session.run(1 << 10)
            else:
                session.poll()
            session.take_replies()
            session.frames_left()
    if session.state.failure:
        raise RuntimeError(session.state.failure_reason)


def _seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _calls(work: Callable[[], None]) -> float:
    """How many calls of functions written in Python some work makes."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return float(count)


def measured(
    recorded: dict[str, Recorded], only: str, counts_calls: bool, make_host: Callable[[], Host]
) -> Iterator[Figure]:
    """Microseconds of CPU time, or calls, of an operation, and of a run where a program is compiled.

    In the first pass everything is new, in the second what was seen once may be learnt; the later ones are alike.
    """
    gc.freeze()
    gc.set_threshold(*garbage.THRESHOLDS)
    unit = "calls" if counts_calls else "us"
    for name, (before, passes) in recorded.items():
        if only not in name:
            continue
        host = make_host()
        session = host.open(host.new_number(), {})
        execute(session, before)
        samples = []
        for frames in passes:
            work = partial(execute, session, frames)
            amount = _calls(work) if counts_calls else _seconds(work) * 1e6
            samples.append(amount / amount_of(frames))
        for passes_of, chosen in (("the first pass", samples[:1]), ("the second pass", samples[1:2]),
                                  ("later passes", samples[2:])):  # fmt: skip
            yield figure(f"{name}: {passes_of}", unit, chosen)
        session.close()


def _host_of(prepares: bool) -> Callable[[], Host]:
    """Return what makes hosts with an idle GPU, whose kernels are prepared as on a real one or not."""
    if prepares:
        from tests.support.idle_factories import PreparingHost

        return PreparingHost
    from tests.support.idle_gpu import IdleHost

    return IdleHost


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.session_cost", description=__doc__)
    parser.add_argument("--frames", type=Path, help="where what was sent is kept; made where it is not there")
    parser.add_argument("--record", action="store_true", help="only write it down")
    parser.add_argument("--only", default="", help="programs whose names hold this text")
    parser.add_argument("--calls", action="store_true", help="count calls of functions written in Python")
    parser.add_argument("--factories", action="store_true", help="prepare kernels as on a GPU, to start none")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    if options.record:
        record(options.frames, options.only)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = options.frames or Path(folder) / "frames"
        if not path.exists():
            command = [sys.executable, "-m", "benchmarks.session_cost", "--record", "--only", options.only]
            subprocess.run([*command, "--frames", str(path)], check=True)
        recorded = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, Recorded])
    figures = list(measured(recorded, options.only, options.calls, _host_of(options.factories)))
    for one in figures:
        print(one.row(), flush=True)
    if options.save:
        save(options.save, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
