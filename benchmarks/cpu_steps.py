"""Steps of training that ``benchmarks.cpu`` compares: the same code over telegrad and PyTorch, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from .models import GPT_SMALL, Setting, gpt_class, mlp, set_weights

Step = Callable[[], Any]
LONGEST = 250


def gpt_step(lib: Any, lengths: list[int], device: str = "cpu") -> Step:
    """A step of the GPT of width 128 on 12 new samples, whose length is the next of the list."""
    rng = np.random.default_rng(0)
    setting = Setting("", GPT_SMALL.layers, GPT_SMALL.width, GPT_SMALL.heads, LONGEST, GPT_SMALL.batch)
    model = gpt_class(lib)(setting)
    set_weights(lib, model, rng, 0)
    model = model.to(device)
    optimizer = lib.optim.AdamW(model.parameters(), lr=3e-4)
    count = 0

    def step() -> Any:
        nonlocal count
        length = lengths[count % len(lengths)]
        count += 1
        batch = lib.tensor(rng.integers(0, setting.vocabulary, (setting.batch, length + 1)), device=device)
        optimizer.zero_grad()
        logits = model(batch[:, :-1], lib.arange(length, device=device))
        loss = lib.nn.functional.cross_entropy(logits.reshape(-1, setting.vocabulary), batch[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step


def _varying(lib: Any) -> Step:
    return gpt_step(lib, np.random.default_rng(1).permutation(np.arange(17, LONGEST + 1)).tolist())


def _inference(lib: Any) -> Step:
    """The same GPT's logits of 12 samples of 128, without gradients."""
    rng = np.random.default_rng(0)
    setting = Setting("", GPT_SMALL.layers, GPT_SMALL.width, GPT_SMALL.heads, LONGEST, GPT_SMALL.batch)
    model = gpt_class(lib)(setting)
    set_weights(lib, model, rng, 0)
    batch = lib.tensor(rng.integers(0, setting.vocabulary, (setting.batch, 128)), device="cpu")
    places = lib.arange(128, device="cpu")

    def step() -> Any:
        with lib.no_grad():
            return model(batch, places).mean()

    return step


def _residual(lib: Any) -> type:
    """The class of ResNet-18's blocks."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        """Two convolutions beside the identity, or beside a convolution that halves the image."""

        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
            plain = before == after and stride == 1
            self.short = nn.Identity() if plain else nn.Conv2d(before, after, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.norms[0](self.first(x)).relu()
            return (self.norms[1](self.second(y)) + self.short(x)).relu()

    return Block


def _resnet(lib: Any) -> Step:
    """A step of ResNet-18 with a quarter of its channels on 16 images of 32 x 32, SGD with momentum."""
    nn, rng, block = lib.nn, np.random.default_rng(0), _residual(lib)
    widths = [16, 16, 16, 32, 32, 64, 64, 128, 128]
    blocks = [block(a, b, 1 if a == b else 2) for a, b in pairwise(widths)]
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)
    ).to("cpu")
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = lib.tensor(rng.standard_normal((16, 3, 32, 32), np.float32), device="cpu")
    classes = lib.tensor(rng.integers(0, 10, 16), device="cpu")

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        return loss

    return step


STEPS: dict[str, tuple[Callable[[Any], Step], float]] = {
    "GPT d128, 4 layers, B12, T64": (lambda lib: gpt_step(lib, [64]), 1.5),
    "GPT d128, 4 layers, B12, T17 to T250": (_varying, 1.5),
    "GPT d128, 4 layers, B12, T128, inference": (_inference, 1.5),
    "MLP 784-256-256-10, batch 128, AdamW": (lambda lib: mlp(lib, "cpu"), 1.5),
    "ResNet-18, a quarter of the channels, 16 images of 32x32": (_resnet, 1.5),
}
"""What makes a step of either library, and the goal as a multiple of PyTorch's time."""
