"""What changes from step to step, beside PyTorch eager: ``python -m benchmarks.changing [--device D] [--save NAME]``.

Sequences of every length, a cache that grows, batches from the host, losses that are read, images of other sizes. The
first pass over the lengths is told apart from later ones. telegrad goes through a real client and server.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import Any, Final

import numpy as np
import torch

from .cpu_steps import LONGEST, gpt_step
from .decoding import decoder
from .measure import Figure, about, figure, save
from .models import mlp
from .resnet import with_images

ROUNDS: Final = 5
LENGTHS: Final = np.random.default_rng(1).permutation(np.arange(17, LONGEST + 1, 4)).tolist()
TOKENS: Final = 96
Work = Callable[[], None]


def _reading(lib: Any, step: Callable[[], Any], count: int) -> Work:
    def work() -> None:
        for _ in range(count):
            step().item()

    return work


def _lengths(lib: Any, device: str) -> Work:
    """One pass over the lengths, in an order that is not theirs."""
    step = gpt_step(lib, LENGTHS, device)

    def work() -> None:
        for _ in LENGTHS:
            loss = step()
        loss.item()

    return work


def _decoding(batch: int) -> Callable[[Any, str], Work]:
    def make(lib: Any, device: str) -> Work:
        decode = decoder(lib, device, batch)
        return lambda: decode(TOKENS).tolist()

    return make


def _host_batches(lib: Any, device: str) -> Work:
    """New samples from the host in each step, and a loss that is read."""
    rng, nn = np.random.default_rng(0), lib.nn
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-3)
    samples, classes = rng.standard_normal((16, 256, 784), np.float32), rng.integers(0, 10, (16, 256))
    count = 0

    def step() -> Any:
        nonlocal count
        count += 1
        x = lib.tensor(samples[count % 16], device=device)
        y = lib.tensor(classes[count % 16], device=device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return _reading(lib, step, 60)


def _small(lib: Any, device: str) -> Work:
    x = lib.ones(8, device=device)

    def work() -> None:
        y = x
        for _ in range(1000):
            y = lib.sin(y) * 1.01
        y.sum().item()

    return work


def _resnet(dtype: str, batch: int) -> Callable[[Any, str], Work]:
    def make(lib: Any, device: str) -> Work:
        model, (images, classes) = with_images(lib, device, dtype, batch)
        optimizer = lib.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

        def work() -> None:
            for _ in range(4):
                optimizer.zero_grad()
                loss = lib.nn.functional.cross_entropy(model(images), classes)
                loss.backward()
                optimizer.step()
            loss.item()

        return work

    return make


def _images(lib: Any, device: str) -> Work:
    """A small U-Net on images of other sizes in each step."""
    nn, rng = lib.nn, np.random.default_rng(0)
    downs = nn.ModuleList([nn.Conv2d(a, b, 3, 1, 1) for a, b in pairwise([3, 16, 32, 64])]).to(device)
    ups = nn.ModuleList([nn.Conv2d(a, b, 3, 1, 1) for a, b in ((96, 32), (48, 16))]).to(device)
    last = nn.Conv2d(16, 1, 1).to(device)
    optimizer = lib.optim.AdamW([*downs.parameters(), *ups.parameters(), *last.parameters()], lr=1e-3)
    sizes = [(32 + 4 * int(a), 32 + 4 * int(b)) for a, b in rng.integers(0, 9, (24, 2))]

    def step(height: int, width: int) -> Any:
        x = lib.tensor(rng.standard_normal((4, 3, height, width), np.float32), device=device)
        kept, y = [], x
        for number, layer in enumerate(downs):
            y = layer(nn.functional.max_pool2d(y, 2) if number else y).relu()
            kept.append(y)
        for layer, beside in zip(ups, kept[-2::-1], strict=True):
            grown = nn.functional.interpolate(y, size=beside.shape[-2:], mode="nearest")
            y = layer(lib.cat([grown, beside], 1)).relu()
        optimizer.zero_grad()
        loss = (last(y) - x.mean(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def work() -> None:
        for size in sizes:
            loss = step(*size)
        loss.item()

    return work


def _episodes(lib: Any, device: str) -> Work:
    """REINFORCE on episodes of other lengths: an action at a time, then an update."""
    nn, rng = lib.nn, np.random.default_rng(0)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    optimizer = lib.optim.Adam(policy.parameters(), lr=1e-2)
    lengths = rng.integers(5, 30, 8).tolist()

    def work() -> None:
        for length in lengths:
            state, chosen = lib.zeros(4, device=device), []
            for _ in range(length):
                scores = policy(state).log_softmax(0)
                action = int(scores.argmax().item())
                chosen.append(scores[action])
                state = lib.tensor(rng.standard_normal(4, np.float32), device=device)
            optimizer.zero_grad()
            loss = -lib.stack(chosen).mean() * length
            loss.backward()
            optimizer.step()
        loss.item()

    return work


Row = tuple[Callable[[Any, str], Work], float | None, float]
ROWS: Final[dict[str, Row]] = {
    "GPT d128 training, a new length every step": (_lengths, 1.0, 0.5),
    "GPT-2 small bf16, greedy decoding, batch 1": (_decoding(1), 1.0, 0.7),
    "GPT-2 small bf16, greedy decoding, batch 8": (_decoding(8), 1.0, 0.7),
    "MLP, a batch from the host and a read each step": (_host_batches, None, 1.1),
    "MLP, a read each step": (lambda lib, device: _reading(lib, mlp(lib, device), 60), None, 0.7),
    "2,000 small operations and one read": (_small, None, 0.5),
    "ResNet-50 bf16 channels_last, batch 64": (_resnet("bfloat16", 64), None, 1.0),
    "ResNet-50 fp32, batch 32": (_resnet("float32", 32), None, 1.0),
    "U-Net on images of other sizes": (_images, 1.0, 1.0),
    "episodes of other lengths, an action at a time": (_episodes, 1.1, 1.1),
}
"""What makes the work, and the goals of the first pass, where there is one, and of later ones."""


def seconds(work: Work) -> float:
    """Return how many seconds some work takes once, on the clock."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _measure(name: str, row: Row, tg: Any, device: str, settling: int) -> list[Figure]:
    """The first pass of a row and its median over later ones, but for those in which what repeats is learnt."""
    make, first_goal, goal = row
    ours, theirs = make(tg, device), make(torch, device)
    theirs_first, first = seconds(theirs), seconds(ours)
    rounds = [(seconds(ours), seconds(theirs)) for _ in range(ROUNDS + settling)][settling:]
    mine, other = median([a for a, _ in rounds]) * 1e3, median([b for _, b in rounds]) * 1e3
    note = f"telegrad {mine:.1f} ms, PyTorch {other:.1f} ms"
    figures = [figure(name, "x torch", [a / b for a, b in rounds], at_most=goal, baseline=note)]
    if first_goal is not None:
        note = f"telegrad {first * 1e3:.1f} ms, PyTorch {theirs_first * 1e3:.1f} ms"
        ratio = [first / theirs_first]
        figures.append(figure(f"{name}: the first pass", "x torch", ratio, at_most=first_goal, baseline=note))
    return figures


def table(program: str, description: str | None, rows: Mapping[str, Row], settling: int) -> int:
    """Measure rows as the command line says, print and save them; return the status of the program.

    ``settling`` rounds after the first pass are not counted.
    """
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="rows whose names hold this text")
    parser.add_argument("--save", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    import telegrad as tg

    figures: list[Figure] = []
    with tg.connect(devices=options.device):
        for name, row in rows.items():
            if options.only in name:
                measured = _measure(name, row, tg, options.device, settling)
                figures += measured
                for one in measured:
                    print(one.row(), flush=True)
                if options.save:
                    save(options.save, figures, **about(options.device))
    return 0


def main() -> int:
    """Print the table of what changes from step to step."""
    return table("python -m benchmarks.changing", __doc__, ROWS, settling=2)


if __name__ == "__main__":
    sys.exit(main())
