"""Probes of one checkout, run beside those of another: what ``benchmarks.compare`` starts, once a checkout.

Reads the name of a probe from each line of standard input and writes its samples to standard output, one JSON list a
line. Uses only what both checkouts have: the public client, the models of ``benchmarks.models``, and the few internal
names that ``_internals`` looks up.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TELEGRAD_NATIVE", "wait")
OPERATIONS = 2000
CALLS = 64
Probe = Callable[[], float]


def _first_module(*names: str) -> Any:
    """The first of these modules that this checkout has."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(f"none of {names}")


def _timed(action: Callable[[], Any], count: int) -> float:
    """Microseconds of one of the ``count`` calls that ``action`` makes."""
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) / count * 1e6


class Probes:
    """The probes on one device, made when they are first asked for."""

    def __init__(self, device: str, over: str) -> None:
        import numpy

        import telegrad

        self.tg = telegrad
        self.device = device
        self.place = "cuda" if device.startswith("cuda") else "cpu"
        connection = telegrad.connect(devices=device)
        server = connection._server
        if over == "tcp" and server is not None:
            telegrad.connect(getattr(server, "pages", server.url))
        self._large = numpy.random.default_rng(0).random(1 << 25)
        self._made: dict[str, Probe] = {}

    def sample(self, name: str, repeats: int) -> list[float]:
        """``repeats`` samples of a probe, in microseconds."""
        if name not in self._made:
            self._made[name] = getattr(self, name)()
            for _ in range(3):
                self._made[name]()
        return [self._made[name]() for _ in range(repeats)]

    def submit(self) -> Probe:
        """An addition that is only queued, per operation."""
        a, b = self.tg.randn(8, 8), self.tg.randn(8, 8)

        def probe() -> float:
            self.tg.cuda.synchronize()
            return _timed(lambda: [None for _ in range(OPERATIONS) if a + b is None], OPERATIONS)

        return probe

    def end_to_end(self) -> Probe:
        """Additions and the wait for all of them, per operation."""
        a, b = self.tg.randn(8, 8), self.tg.randn(8, 8)

        def work() -> None:
            for _ in range(OPERATIONS):
                a + b
            self.tg.cuda.synchronize()

        return lambda: _timed(work, OPERATIONS)

    def round_trip(self) -> Probe:
        """The median time in which a scalar is read."""
        scalar = self.tg.randn(())
        return lambda: sorted(_timed(scalar.item, 1) for _ in range(300))[150]

    def round_trip_tail(self) -> Probe:
        """The time in which 99 of 100 reads of a scalar are done."""
        scalar = self.tg.randn(())
        return lambda: sorted(_timed(scalar.item, 1) for _ in range(1000))[990]

    def upload(self) -> Probe:
        """256 MiB from an array to a tensor."""
        kept: list[Any] = [None]

        def work() -> None:
            kept[0] = None
            kept[0] = self.tg.from_numpy(self._large).to(self.place)
            self.tg.cuda.synchronize()

        return lambda: _timed(work, 1)

    def download(self) -> Probe:
        """256 MiB from a tensor to an array."""
        tensor = self.tg.from_numpy(self._large).to(self.place)
        return lambda: _timed(tensor.cpu().numpy if self.place == "cuda" else tensor.numpy, 1)

    def mlp_new_batch(self) -> Probe:
        """A training step of a small perceptron on a batch of 256 images from the client, and its loss read."""
        tg, batch = self.tg, self._large[: 256 * 784].reshape(256, 784).astype("float32")
        layers = (tg.nn.Linear(784, 512), tg.nn.ReLU(), tg.nn.Linear(512, 10))
        model = tg.nn.Sequential(*layers).to(self.place)
        optimizer = tg.optim.SGD(model.parameters(), lr=0.01)
        target = tg.zeros(256, dtype=tg.int64, device=self.place)

        def step() -> None:
            optimizer.zero_grad()
            loss = tg.nn.functional.cross_entropy(model(tg.from_numpy(batch).to(self.place)), target)
            loss.backward()
            optimizer.step()
            loss.item()

        def work() -> None:
            for _ in range(10):
                step()

        return lambda: _timed(work, 10)

    def mlp_step(self) -> Probe:
        """A training step of a multilayer perceptron."""
        return self._step(lambda models: models.mlp(self.tg, self.place, 0), 20)

    def gpt_step(self) -> Probe:
        """A training step of a GPT of width 128."""
        return self._step(
            lambda models: models.gpt(self.tg, models.GPT_SMALL, self.place, 0), 10 if self.place == "cuda" else 2
        )

    def _step(self, make: Callable[[Any], Callable[[], Any]], steps: int) -> Probe:
        step = make(importlib.import_module("benchmarks.models"))
        for _ in range(60 if self.place == "cuda" else 4):  # what a GPU replays is learnt in some steps
            step()
        self.tg.cuda.synchronize()

        def work() -> None:
            for _ in range(steps):
                step()
            self.tg.cuda.synchronize()

        return lambda: _timed(work, steps)

    def add(self) -> Probe:
        """What an addition without gradient costs the worker: a frame of 64 calls, executed by a session."""
        return self._frame(False)

    def add_with_gradient(self) -> Probe:
        """What an addition that is recorded costs the worker."""
        return self._frame(True)

    def _frame(self, records: bool) -> Probe:
        session, frame, wire = self._session_and_frame(records)
        state = getattr(session, "state", session)

        def execute() -> None:
            session.receive(wire.BATCH, memoryview(frame))
            while session.has_work:
                session.run(CALLS)
            if state.failure:
                raise RuntimeError(state.failure_reason)

        def probe() -> float:
            samples = sorted(_timed(execute, CALLS) for _ in range(100))
            return samples[50]

        return probe

    def _session_and_frame(self, records: bool) -> tuple[Any, bytes, Any]:
        from telegrad_protocol import dtypes, messages, ops, wire

        host_module = _first_module("server.worker.host", "server.host")
        session = host_module.Host([self.device]).open(host_module.Host.new_number(), {})
        data = bytes(4 * 64 * 64)
        uploads = [messages.Upload(k, 0, dtypes.float32.code, (64, 64), self.device, data) for k in (1, 2)]
        batch: list[Any] = [*uploads, messages.SetRequiresGrad(1, records)]
        session.receive(wire.BATCH, memoryview(wire.encode_batch(batch)))
        session.run(len(batch))
        outs = range(10, 10 + CALLS)
        calls: list[Any] = [messages.Call(ops.TABLE["add"].index, 0, (out,), [1, 2, 1]) for out in outs]
        return session, wire.encode_batch([*calls, messages.Free(list(outs))]), wire

    def malloc_free(self) -> Probe:
        """One block taken and given back, as a step does it that repeats."""
        host_module = _first_module("server.worker.host", "server.host")
        host = host_module.Host([self.device])
        allocator = next(iter(host.backends.values())).allocator
        number = host_module.Host.new_number()
        host.open(number, {})
        sizes = [512, 65536, 1 << 20, 4096] * 16

        def work() -> None:
            allocate, free = allocator.allocate, allocator.free
            for _ in range(20):
                for block in [allocate(size, 0, number) for size in sizes]:
                    free(block)

        return lambda: _timed(work, 20 * len(sizes))


def main() -> None:
    """Answer one line after the other until there are no more."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    probes = Probes(*sys.argv[1:3])
    gc.freeze()
    for line in sys.stdin:
        name, repeats = line.split()
        print(json.dumps(probes.sample(name, int(repeats))), file=answers, flush=True)


if __name__ == "__main__":
    main()
