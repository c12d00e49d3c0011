"""What a profile adds to each end where no GPU is needed: ``python -m benchmarks.profiling_session [--save NAME]``.

The session of a worker executes the same instructions with a profile and without, in turns, on a device whose launches
wait as those of a GPU do and start nothing; and the client makes calls that are sent nowhere. What is shown is CPU time
of one thread, and bytecodes, which are the same each time. What CUPTI and the driver add is not in it:
``benchmarks.profiling`` shows the whole on a GPU.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from server.session.session import Session
from server.worker import garbage
from telegrad.profiler._log import ClientLog
from telegrad_protocol import dtypes, messages, wire
from telegrad_protocol.ops import TABLE

from .measure import Figure, figure, save, shown
from .profiling_cost import LIMIT
from .session_cost import Frames, execute

ROUNDS: Final = 60
BATCH: Final = 64
BATCHES: Final = 16
_DEVICE: Final = "cuda:0"
_FIRST_ID: Final = 1 << 16
"""From here on the numbers of tensors take as many bytes each time."""


class _Stream:
    """Instructions of one session: additions, each of which frees the result before it."""

    def __init__(self, records: bool) -> None:
        self._ids = itertools.count(_FIRST_ID)
        self._records = records
        self._requests = itertools.count(1)

    def begin(self) -> Frames:
        """Return what makes the operands."""
        make = TABLE["ones"].index
        operands = [messages.Call(make, 1, (id,), [[64, 64], dtypes.float32.code, _DEVICE]) for id in (1, 2)]
        return _sent(*operands, messages.SetRequiresGrad(1, self._records))

    def loop(self) -> Frames:
        """Return the batches of one loop."""
        return [frame for _ in range(BATCHES) for frame in self._batch()]

    def _batch(self) -> Frames:
        add = TABLE["add"].index
        ids = [next(self._ids) for _ in range(BATCH)]
        freed = [(id - 1,) if id > _FIRST_ID else () for id in ids]
        return _sent(*[messages.Call(add, 2, (id,), [1, 2, 1], gone) for id, gone in zip(ids, freed, strict=True)])

    def query(self, what: str, *arguments: Any) -> Frames:
        """Return a request."""
        return _sent(messages.Query(next(self._requests), what, list(arguments)))


def _sent(*instructions: Any) -> Frames:
    return [(wire.BATCH, wire.encode_batch(list(instructions)))]


class _Counter:
    """Counts bytecodes while something is executed."""

    def __init__(self) -> None:
        self._count = 0

    def of(self, work: Callable[[], object]) -> int:
        """Return how many bytecodes some work takes."""
        self._count = 0
        sys.settrace(self._enter)
        try:
            work()
        finally:
            sys.settrace(None)
        return self._count

    def _enter(self, frame: Any, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._note

    def _note(self, frame: Any, event: str, argument: Any) -> Any:
        self._count += event == "opcode"
        return self._note


def _pairs(off: Callable[[], float], on: Callable[[], float]) -> list[float]:
    """Return by how much the second is more than the first, before and after."""
    for _ in range(4):
        off(), on()
    before, more = off(), []
    for _ in range(ROUNDS):
        under = on()
        after = off()
        more.append(under - (before + after) / 2)
        before = after
    return more


def session_figures(
    name: str, records: bool, with_memory: bool, recurs: bool, with_devices: bool = True
) -> Iterator[Figure]:
    """What a profile adds to the session of a worker for an addition of 64x64."""
    from tests.support.idle_gpu import IdleHost

    host, stream, counter = IdleHost(), _Stream(records), _Counter()
    session = host.open(host.new_number(), {})
    execute(session, stream.begin())
    if not recurs:
        session._batches.policy.cooldown = 1 << 40

    def seconds() -> float:
        frames = stream.loop()
        begin = time.thread_time()
        execute(session, frames)
        return (time.thread_time() - begin) / (BATCH * BATCHES) * 1e6

    def profiled() -> float:
        with _Profiled(session, stream, with_memory, with_devices):
            return min([seconds() for _ in range(3)])

    more = _pairs(lambda: min([seconds() for _ in range(3)]), profiled)
    without = counter.of(lambda: execute(session, stream.loop()))
    with _Profiled(session, stream, with_memory, with_devices):
        execute(session, stream.loop())
        noted = counter.of(lambda: execute(session, stream.loop()))
    session.close()
    codes = f"{(noted - without) / (BATCH * BATCHES):.0f} bytecodes more than {without / (BATCH * BATCHES):.0f}"
    bound = {} if with_memory else {"at_most": 2.0}
    yield figure(f"the session adds: {name}", "us", more, baseline=codes, **bound)


class _Profiled:
    """Profiles a session within the block."""

    def __init__(self, session: Session, stream: _Stream, with_memory: bool, with_devices: bool) -> None:
        self._session, self._stream = session, stream
        self._options = with_memory, with_devices, LIMIT

    def __enter__(self) -> None:
        execute(self._session, self._stream.query("start_profile", *self._options))

    def __exit__(self, *raised: object) -> None:
        execute(self._session, self._stream.query("stop_profile"))
        for id in [id for id in self._session.state.values if id >= messages.SERVER_IDS]:
            execute(self._session, _sent(messages.Free([id])))


def client_figures() -> Iterator[Figure]:
    """What a profile adds to the client for an addition."""
    import telegrad as tg
    from server.worker.host import Host

    with tg.connect(in_process=Host(["cpu"])):
        a, b = tg.ones(64, 64), tg.ones(64, 64)
        session, counter = a._session, _Counter()
        tg.cuda.synchronize()
        sent = session.transport.send_batch

        def loop() -> None:
            for _ in range(BATCH * BATCHES):
                a + b

        def seconds() -> float:
            begin = time.thread_time()
            loop()
            return (time.thread_time() - begin) / (BATCH * BATCHES) * 1e6

        def under(with_stack: bool, work: Callable[[], Any]) -> Any:
            log = ClientLog(session, with_stack)
            log.start()
            session.transport.send_batch = _nowhere  # type: ignore[method-assign]
            try:
                return work()
            finally:
                log.stop()
                session.transport.send_batch = _nowhere  # type: ignore[method-assign]

        session.transport.send_batch = _nowhere  # type: ignore[method-assign]
        without = counter.of(loop)
        for name, with_stack in (("a profile", False), ("a profile with_stack", True)):
            more = _pairs(seconds, lambda stack=with_stack: under(stack, seconds))  # type: ignore[misc]
            codes = (under(with_stack, lambda: counter.of(loop)) - without) / (BATCH * BATCHES)
            bound = {} if with_stack else {"at_most": 2.0}
            yield figure(f"the client adds: {name}", "us", more, baseline=f"{codes:.0f} bytecodes more", **bound)
        session.transport.send_batch = sent  # type: ignore[method-assign]


def _nowhere(body: bytes) -> None:
    """Send nothing."""


SESSIONS: Final = (
    ("calls that come again", False, False, True),
    ("calls that do not come again", False, False, False),
    ("calls with a history", True, False, True),
    ("calls that come again, profile_memory", False, True, True),
    ("calls that come again, the CPU alone", False, False, True, False),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling_session", description=__doc__)
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args(arguments)
    gc.freeze()
    gc.set_threshold(*garbage.THRESHOLDS)
    sessions = itertools.chain.from_iterable(itertools.starmap(session_figures, SESSIONS))
    figures = shown(itertools.chain(sessions, client_figures()))
    if options.save:
        save(options.save, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
