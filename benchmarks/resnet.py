"""ResNet-50 and a batch of images for it: the same code over telegrad and PyTorch."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""The inner width of each stage's blocks, and how many there are."""


@cache
def block_class(lib: Any) -> type:
    """The class of ResNet-50's blocks."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        """Convolutions of 1, 3 and 1 beside the identity, or beside a convolution."""

        def __init__(self, before: int, inner: int, stride: int) -> None:
            super().__init__()
            after = 4 * inner
            widths = [(before, inner, 1, 1), (inner, inner, 3, stride), (inner, after, 1, 1)]
            self.layers = nn.ModuleList([nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in widths])
            self.norms = nn.ModuleList([nn.BatchNorm2d(b) for _, b, _, _ in widths])
            self.short = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            y = x
            for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
                y = norm(layer(y))
                y = y.relu() if number < 2 else y
            return (y + self.short(x)).relu()

    return Block


def resnet50(lib: Any) -> Any:
    """Images (N, 3, H, W) to logits (N, 1000)."""
    nn, block = lib.nn, block_class(lib)
    layers, before = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for inner, count in STAGES:
        for number in range(count):
            layers.append(block(before, inner, 2 if inner > 64 and not number else 1))
            before = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def with_images(lib: Any, device: str, dtype: str, batch: int) -> tuple[Any, tuple[Any, Any]]:
    """The model and a batch of images and classes, in bfloat16 with the channels last, else with them first."""
    rng = np.random.default_rng(0)
    form = lib.channels_last if dtype == "bfloat16" else lib.contiguous_format
    model = resnet50(lib).to(device).to(getattr(lib, dtype)).to(memory_format=form)
    images = lib.tensor(rng.standard_normal((batch, 3, 224, 224), np.float32), device=device)
    images = images.to(getattr(lib, dtype)).contiguous(memory_format=form)
    return model, (images, lib.tensor(rng.integers(0, 1000, batch), device=device))
