"""What one small eager operation costs a worker's host on a GPU: ``python -m benchmarks.host_cost [--save NAME]``.

A session executes frames of 64 additions of 64x64 matrices, as a client sends them, without and with gradient; beside
PyTorch's own cost of the same addition in the same process. Layers are measured on their own or by difference:
``decode`` is what a call from the wire costs more than one that is bound, ``dispatch`` what the dispatcher does for a
bound one beside allocation and launch, ``autograd`` what a recorded operation costs more, ``launch`` one of a run that
comes again, which is made as one, ``launch elsewhere`` one of a run on other memory each time, and ``launch alone``
the same where launches do not wait.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch

from server.engine import context, keys
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Request
from server.ipc.worker_environment import on_one_stack
from server.worker import garbage
from server.worker.host import Host
from telegrad_protocol import messages, wire
from telegrad_protocol.dtypes import float32
from telegrad_protocol.meta import Device

from .measure import Figure, about, figure, save

_SIDE = 64
_CALLS = 64
_PLACES = 193
"""So many results take turns, with which runs of so many calls never come to the same places soon."""
_SAMPLES = 200
_DEVICE = Device("cuda:0")
_ADD = OPERATORS["add"]


def _microseconds(action: Callable[[], Any], each: int) -> list[float]:
    """Of one call; ``action`` makes ``each``. The device is waited for between samples, outside of them."""
    for _ in range(20):
        action()
    found = []
    for _ in range(_SAMPLES):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        action()
        found.append((time.perf_counter() - begin) / each * 1e6)
    return found


def _repeated(action: Callable[[], Any], end: Callable[[], Any] = lambda: None) -> Callable[[], None]:
    def run() -> None:
        results = [action() for _ in range(_CALLS)]  # kept until all are there, as in a frame
        results.clear()
        end()

    return run


class Worker:
    """A session with two matrices, the first of which may require a gradient."""

    def __init__(self, records: bool) -> None:
        self.session = Host([_DEVICE.name]).open(Host.new_number(), {})
        data = bytes(4 * _SIDE * _SIDE)
        uploads = [messages.Upload(k, 0, float32.code, (_SIDE, _SIDE), _DEVICE.name, data) for k in (1, 2)]
        self._execute([*uploads, messages.SetRequiresGrad(1, records)])
        outs = range(10, 10 + _CALLS)
        calls: list[Any] = [messages.Call(_ADD.op.index, 0, (out,), [1, 2, 1]) for out in outs]
        self.frame = wire.encode_batch([*calls, messages.Free(list(outs))])
        self.args = (self.session.state.values[1], self.session.state.values[2], 1)

    def _execute(self, batch: list[Any]) -> None:
        self.session.receive(wire.BATCH, memoryview(wire.encode_batch(batch)))
        self.session.run(len(batch))

    def execute_frame(self) -> None:
        """One frame: as many calls, and the results' frees."""
        self.session.receive(wire.BATCH, memoryview(self.frame))
        while self.session.has_work:
            self.session.run(_CALLS)
        if self.session.state.failure:
            raise RuntimeError(self.session.state.failure_reason)


def _layers(worker: Worker) -> dict[str, list[float]]:
    """Dispatch with everything below it, and allocation and launch alone."""
    worker.session.activate()
    context.current.grad_enabled = True
    backend = context.current.backends[_DEVICE]
    args = worker.args
    meta = args[0].meta
    request = Request(_ADD.op, backend, (meta, meta, 1), (meta,), float32)
    launch: Any = next(p.factory(request) for p in _ADD.preparers[keys.CUDA])
    later, out = backend.deferring(launch), (backend.empty(meta),)
    elsewhere = cycle([(backend.empty(meta),) for _ in range(_PLACES)])
    found = {"launch alone": _microseconds(_repeated(lambda: launch(args, out)), _CALLS)}
    backend.allow_waiting()
    try:
        return {
            **found,
            "dispatched": _microseconds(_repeated(lambda: dispatch(_ADD, args), backend.flush), _CALLS),
            "allocate": _microseconds(_repeated(lambda: backend.empty(meta)), _CALLS),
            "launch": _microseconds(_repeated(lambda: later(args, out), backend.flush), _CALLS),
            "launch elsewhere": _microseconds(_repeated(lambda: later(args, next(elsewhere)), backend.flush), _CALLS),
        }
    finally:
        backend.end_waiting()


def run() -> list[Figure]:
    """Both totals beside PyTorch's, then the layers."""
    gc.freeze()  # as a worker does
    gc.set_threshold(*garbage.THRESHOLDS)
    x, y = (torch.zeros(_SIDE, _SIDE, device="cuda") for _ in range(2))
    found, layers = [], {}
    for records in (False, True):
        label = "with gradient" if records else "without gradient"
        worker = Worker(records)
        leaf = x.clone().requires_grad_(records)
        reference = statistics.median(_microseconds(_repeated(lambda leaf=leaf: torch.add(leaf, y)), _CALLS))
        total = _microseconds(worker.execute_frame, _CALLS)
        note = f"PyTorch {reference:.2f} us"
        found.append(figure(f"add, {label}", "us", total, at_most=reference, baseline=note, pytorch=reference))
        layers[records] = {"total": total, **_layers(worker)}
        worker.session.close()
    return found + _by_layer(layers)


def _by_layer(layers: dict[bool, dict[str, list[float]]]) -> list[Figure]:
    middle = {k: {name: statistics.median(s) for name, s in each.items()} for k, each in layers.items()}
    plain, recorded = middle[False], middle[True]
    costs = {
        "decode": plain["total"] - plain["dispatched"],
        "dispatch": plain["dispatched"] - plain["allocate"] - plain["launch"],
        "autograd": recorded["dispatched"] - plain["dispatched"],
        "allocate": plain["allocate"],
        "launch": plain["launch"],
        "launch elsewhere": plain["launch elsewhere"],
        "launch alone": plain["launch alone"],
    }
    return [figure(f"  {name}", "us", [value]) for name, value in costs.items()]


def main() -> int:
    """Print the table; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_cost", description=__doc__)
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    figures = on_one_stack(run)  # as a worker has it
    for each in figures:
        print(each.row())
    if options.save:
        save(options.save, figures, **about("cuda"))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
