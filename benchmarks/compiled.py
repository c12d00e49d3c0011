"""Compiled steps beside eager ones and PyTorch: ``python -m benchmarks.compiled [--device cpu] [--save NAME]``.

Each step is the same code over telegrad, eager and compiled, and over PyTorch, eager and compiled, one after the other:
trainings that took turns in one process would move each other's memory, which no program does that people run.
telegrad goes through a real client and server, with the loss read after a few steps. Figures are ratios of times on the
clock, for which the machine has to be idle, and bytes that a compiled step sends, its batch aside. For calls whose
kernels take next to nothing there is the processor's time that client, gateway and worker spend on each of them.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TELEGRAD_COMPILED_KERNELS", "wait")

import numpy as np
import torch

from telegrad_protocol import wire
from telegrad_protocol.messages import Call
from telegrad_protocol.ops import TABLE
from telegrad_protocol.programs.rows import Flat, Template

from .decoding import static_decoder
from .measure import Figure, about, figure, save, step_seconds
from .models import GPT_2, GPT_MIDDLE, GPT_SMALL, Setting, gpt_class, set_weights
from .resnet import with_images

ROUNDS = 7
_ROUND_SECONDS = 0.4
_WARM = 8
Step = Callable[[], Any]
Make = Callable[[Any, str, Callable[[Any], Any]], Step]
"""Makes a step of a library on a device; the last argument compiles a function, or leaves it as it is."""


def _training(
    lib: Any, model: Any, inputs: tuple[Any, Any], compile: Callable[[Any], Any], autocast: str = ""
) -> Step:  # fmt: skip
    optimizer = lib.optim.AdamW(model.parameters(), lr=3e-4)
    x, y = inputs

    def step() -> Any:
        optimizer.zero_grad()
        with lib.autocast(x.device.type, dtype=getattr(lib, autocast)) if autocast else nullcontext():
            logits = model(x)
            loss = lib.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    if lib is not torch:
        return compile(step)  # type: ignore[no-any-return]
    model = compile(model)
    return step


def _mlp(lib: Any, device: str, compile: Callable[[Any], Any]) -> Step:
    rng = np.random.default_rng(0)
    nn = lib.nn
    layers = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    model = nn.Sequential(*layers).to(device)
    x = lib.tensor(rng.standard_normal((128, 784), np.float32), device=device)
    return _training(lib, model, (x, lib.tensor(rng.integers(0, 10, 128), device=device)), compile)


def _gpt(setting: Setting, lib: Any, device: str, compile: Callable[[Any], Any]) -> Step:
    rng = np.random.default_rng(0)
    model = gpt_class(lib)(setting)
    set_weights(lib, model, rng, 0)
    model = model.to(device)
    tokens = lib.tensor(rng.integers(0, setting.vocabulary, (setting.batch, setting.context + 1)), device=device)
    places = lib.arange(setting.context, device=device)

    class WithPlaces(lib.nn.Module):  # type: ignore[misc, name-defined]
        """The model on tokens alone."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model(x, places)

    return _training(lib, WithPlaces(), (tokens[:, :-1], tokens[:, 1:]), compile, setting.autocast)


def _resnet(lib: Any, device: str, compile: Callable[[Any], Any]) -> Step:
    return _training(lib, *with_images(lib, device, "bfloat16", 64), compile)


def _written_out(lib: Any, device: str, compile: Callable[[Any], Any]) -> Step:
    """GELU and a normalization in their formulas, with gradients: what people write in papers' code."""
    rng = np.random.default_rng(0)
    x = lib.tensor(rng.standard_normal((512, 1024), np.float32), device=device, requires_grad=True)
    weight = lib.ones(1024, device=device, requires_grad=True)

    def formula(x: Any, weight: Any) -> Any:
        centred = x - x.mean(-1, keepdim=True)
        normal = centred * lib.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight
        inner = math.sqrt(2 / math.pi) * (normal + 0.044715 * normal * normal * normal)
        return (0.5 * normal * (1 + lib.tanh(inner))).sum()

    chosen = compile(formula) if lib is torch else formula

    def step() -> Any:
        x.grad = weight.grad = None
        loss = chosen(x, weight)
        loss.backward()
        return loss.detach()

    return step if lib is torch else compile(step)  # type: ignore[no-any-return]


def _small(lib: Any, device: str, compile: Callable[[Any], Any]) -> Step:
    """Two hundred operations on a few elements: what the host does, and nothing else."""
    x = lib.ones(8, device=device)

    def step() -> Any:
        y = x
        for _ in range(100):
            y = lib.sin(y) * 1.01
        return y.sum()

    return compile(step)  # type: ignore[no-any-return]


STEPS: dict[str, Make] = {
    "MLP 784-256-256-10, batch 128, AdamW": _mlp,
    "GPT d128, T64, B12, AdamW": partial(_gpt, GPT_SMALL),
    "normalization and GELU written out, with gradients": _written_out,
    "200 operations on 8 elements": _small,
}
LARGE: dict[str, Make] = {
    "GPT d384, T256, B64, bf16, AdamW": partial(_gpt, replace(GPT_MIDDLE, autocast="bfloat16")),
    "GPT-2 small, T1024, B8, bf16, AdamW": partial(_gpt, GPT_2),
    "ResNet-50, bf16 channels_last, B64, AdamW": _resnet,
    "GPT-2 small, bf16, a token by a static cache": static_decoder,
}
"""What only a GPU does in reasonable time."""


class _Bytes:
    """Counts what a session sends."""

    def __init__(self, session: Any) -> None:
        self.count = 0
        send = session.transport.send_batch

        def counting(body: bytes) -> None:
            self.count += len(body)
            send(body)

        session.transport.send_batch = counting


def _measure(name: str, make: Make, tg: Any, device: str) -> list[Figure]:
    ways = {
        "compiled": (tg, tg.compile), "eager": (tg, _as_it_is), "PyTorch": (torch, _as_it_is),
        "torch.compile": (torch, torch.compile),
    }  # fmt: skip
    if device != "cpu":
        ways["reduce-overhead"] = (torch, partial(torch.compile, mode="reduce-overhead"))
    samples: dict[str, list[float]] = {}
    begun: dict[str, float] = {}
    peaks: dict[str, float] = {}
    settled: dict[str, float] = {}
    step: Any = None
    for way, (lib, compile) in ways.items():
        step = None
        gc.collect()
        gc.freeze()  # what other ways have left, PyTorch's compilers above all, is none of this one's garbage
        peak = _Peak(lib, device)
        step = make(lib, device, compile)
        peak.begin()
        begin = time.perf_counter()
        step_seconds(step, _WARM)
        begun[way] = time.perf_counter() - begin
        peaks[way] = peak.nbytes()
        peak.begin()
        samples[way] = _settled_seconds(step)
        settled[way] = peak.nbytes()
        if way == "compiled":
            sent = _sent(name, step, tg)
    medians = {way: _median(seconds) * 1e3 for way, seconds in samples.items()}
    figures = []
    for way in [way for way in ways if way != "compiled"]:
        note = f"compiled {medians['compiled']:.3g} ms, {way} {medians[way]:.3g} ms"
        ratios = [mine / other for mine, other in zip(samples["compiled"], samples[way], strict=True)]
        figures.append(figure(f"{name}: compiled over {way}", "x", ratios, baseline=note, **medians))
    return [*figures, *_costs(name, begun, peaks, settled), sent]


class _Peak:
    """The most memory of a device that is allocated from ``begin`` on, besides what is allocated when this is made."""

    def __init__(self, lib: Any, device: str) -> None:
        self._cuda = None if device == "cpu" else lib.cuda
        if self._cuda is not None:
            self._cuda.synchronize()
            self._before = self._cuda.memory_allocated()

    def begin(self) -> None:
        """Count from here on: a model was made, which takes some copies for a moment."""
        if self._cuda is not None:
            self._cuda.synchronize()
            self._cuda.reset_peak_memory_stats()

    def nbytes(self) -> float:
        """How many bytes that were up to now; 0 on the host, where nobody counts them."""
        return 0.0 if self._cuda is None else float(self._cuda.max_memory_allocated() - self._before)


def _costs(name: str, begun: dict[str, float], *peaks: dict[str, float]) -> Iterator[Figure]:
    """What compiling costs, beside ``torch.compile``: the first calls, and the device's memory in them and later."""
    memory = zip(("peak memory of the first calls", "peak memory of later calls"), ("MiB", "MiB"), peaks, strict=True)
    for title, unit, costs in (("the first calls", "s", begun), *memory):
        scale = 1 if unit == "s" else 1 << 20
        mine, other = costs["compiled"] / scale, costs["torch.compile"] / scale
        if other:
            note = f"compiled {mine:.4g} {unit}, torch.compile {other:.4g} {unit}"
            yield figure(f"{name}: {title} over torch.compile", "x", [mine / other], at_most=1.0, baseline=note)


def _as_it_is(function: Any) -> Any:
    return function


def _settled_seconds(step: Step) -> list[float]:
    """The seconds of a step in each round, once what comes again has been seen often enough."""
    step_seconds(step, _WARM)
    count = max(1, round(_ROUND_SECONDS / step_seconds(step, 3)))
    step_seconds(step, count)
    return [step_seconds(step, count) for _ in range(ROUNDS)]


def _sent(name: str, step: Step, tg: Any) -> Figure:
    session = tg.ones(1)._session
    counted = _Bytes(session)
    sizes = []
    for _ in range(ROUNDS):
        session.flush()
        counted.count = 0
        kept = step()
        session.flush()
        sizes.append(float(counted.count))
    kept.item()
    return figure(f"{name}: bytes of a compiled step", "bytes", sizes, at_most=200)


def _tiny(trains: bool, lib: Any, device: str, compile: Callable[[Any], Any]) -> Step:
    """An MLP of 16 units on 8 rows, whose kernels take next to nothing."""
    rng = np.random.default_rng(0)
    nn = lib.nn
    layers = [nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)]
    model = nn.Sequential(*layers).to(device)
    x = lib.tensor(rng.standard_normal((8, 16), np.float32), device=device)
    if trains:
        return _training(lib, model, (x, lib.tensor(rng.integers(0, 4, 8), device=device)), compile)

    def infer() -> Any:
        with lib.no_grad():
            return model(x)

    return compile(infer)  # type: ignore[no-any-return]


TINY: dict[str, Make] = {"tiny training step": partial(_tiny, True), "tiny inference": partial(_tiny, False)}
_CALLS = 300
_SERVER_PROCESSES = ("gateway", "worker")


def _calls(name: str, make: Make, tg: Any, device: str) -> list[Figure]:
    """The processor's time of each process for a call, in microseconds; calls follow each other, nothing is read."""
    ways: dict[str, Step] = {
        "compiled": make(tg, device, tg.compile), "eager": make(tg, device, _as_it_is),
        "PyTorch": make(torch, device, _as_it_is), "torch.compile": make(torch, device, torch.compile),
    }  # fmt: skip
    for step in ways.values():
        _loop(step, 2 * _WARM)
    rounds = [{way: _processes(step) for way, step in ways.items()} for _ in range(ROUNDS)]
    local = {way: _median([one[way]["client"] for one in rounds]) for way in ("PyTorch", "torch.compile")}
    figures = []
    for process in ("client", *_SERVER_PROCESSES):
        samples = [one["compiled"][process] for one in rounds]
        note = f"eager {_median([one['eager'][process] for one in rounds]):.3g} us"
        if process == "client":
            note += "".join([f", {way} {microseconds:.3g} us" for way, microseconds in local.items()])
        figures.append(figure(f"{name}, compiled: {process}", "us", samples, baseline=note))
    return figures


def _median(samples: list[float]) -> float:
    return sorted(samples)[len(samples) // 2]


def _loop(step: Step, count: int) -> None:
    for _ in range(count):
        kept = step()
    kept.sum().item()


def _processes(step: Step) -> dict[str, float]:
    """Return the microseconds that this process, the gateway and the worker are busy for each of many calls."""
    pids = {"client": os.getpid(), **_servers()}
    before = {name: _busy(pid) for name, pid in pids.items()}
    _loop(step, _CALLS)
    return {name: (_busy(pid) - before[name]) / _CALLS / 1e3 for name, pid in pids.items()}


def _servers() -> dict[str, int]:
    """Return the processes of the private server."""
    (gateway,) = _children(os.getpid(), "server")
    return dict(zip(_SERVER_PROCESSES, (gateway, *_children(gateway, "worker")), strict=True))


def _children(parent: int, name: str) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [int(pid) for task in tasks for pid in task.read_text().split()]
    return [pid for pid in pids if name in Path(f"/proc/{pid}/cmdline").read_text()]


def _busy(pid: int) -> int:
    """Return the nanoseconds that all threads of a process have run for."""
    return sum([int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")])


def _instructions() -> list[Figure]:
    """What an instruction of a program costs: written as a row, encoded plainly, made again, and decoded."""
    add, first = TABLE["add"].index, 100
    calls = [Call(add, 1, (first + 1 + n,), [first + n if n else 7, 7, 1.0]) for n in range(100)]
    flat, body = Flat(calls, first), wire.encode_batch(calls)
    template = Template(len(flat.inputs), flat.rows, flat.constants)
    works: dict[str, Callable[[], Any]] = {
        "written as a row": lambda: Flat(calls, first), "encoded plainly": lambda: wire.encode_batch(calls),
        "made of a row": lambda: template.instructions(template.ids(first, flat.inputs)),
        "decoded": lambda: wire.decode_instructions(body),
    }  # fmt: skip
    return [figure(f"an instruction {name}", "us", _microseconds(work, len(calls))) for name, work in works.items()]


def _microseconds(work: Callable[[], Any], count: int) -> list[float]:
    """The processor's time for each of ``count`` things that the work does, in several samples of a hundred."""
    samples = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(100):
            work()
        samples.append((time.process_time() - begin) / 100 / count * 1e6)
    return samples


def _is_wanted(name: str, only: list[str] | None) -> bool:
    return only is None or any([text in name for text in only])


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", action="append", help="steps whose names hold this text; may be given several times")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    import telegrad as tg

    figures: list[Figure] = []

    def note(measured: list[Figure]) -> None:
        figures.extend(measured)
        for one in measured:
            print(one.row(), flush=True)
        if options.save:
            save(options.save, figures, **about(options.device))

    with tg.connect(devices=options.device):
        for name, make in (STEPS if options.device == "cpu" else {**STEPS, **LARGE}).items():
            if _is_wanted(name, options.only):
                note(_measure(name, make, tg, options.device))
        for name, make in TINY.items():
            if _is_wanted(name, options.only):
                note(_calls(name, make, tg, options.device))
    if not options.only:
        note(_instructions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
