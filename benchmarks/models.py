"""Models that both libraries can train: the same code over PyTorch or telegrad, from the same initial weights.

A model class needs its library's ``Module`` as its base, so it is made by a function of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Setting:
    """A model and how it is trained; ``autocast`` is the name of a lower precision, empty for float32."""

    name: str
    layers: int
    width: int
    heads: int
    context: int
    batch: int
    vocabulary: int = 65
    autocast: str = ""


GPT_SMALL = Setting("GPT d128, 4 layers, T64 B12, fp32", 4, 128, 4, 64, 12)
GPT_MIDDLE = Setting("GPT d384, 6 layers, T256 B64, fp32", 6, 384, 6, 256, 64)
GPT_2 = Setting("GPT-2 small, T1024 B8, autocast bf16", 12, 768, 12, 1024, 8, 50257, "bfloat16")

Step = Callable[[], Any]


@cache
def gpt_class(lib: Any) -> Any:
    """The class of decoder-only transformers, in the shape of GPT-2."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        """Attention and a multilayer perceptron, both on the residual path."""

        def __init__(self, s: Setting) -> None:
            super().__init__()
            self.heads = s.heads
            self.ln_1, self.ln_2 = nn.LayerNorm(s.width), nn.LayerNorm(s.width)
            self.qkv, self.out = nn.Linear(s.width, 3 * s.width), nn.Linear(s.width, s.width)
            self.up, self.down = nn.Linear(s.width, 4 * s.width), nn.Linear(4 * s.width, s.width)

        def forward(self, x: Any) -> Any:
            x = x + self.out(self.attend(self.qkv(self.ln_1(x))))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))

        def attend(self, qkv: Any) -> Any:
            n, t, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
            q, k, v = [
                part.view(n, t, self.heads, width // self.heads).transpose(1, 2) for part in qkv.split(width, dim=2)
            ]
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return mixed.transpose(1, 2).reshape(n, t, width)

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        """Token indices (N, T) to logits (N, T, vocabulary); the head shares the embedding's weight."""

        def __init__(self, s: Setting) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(s.vocabulary, s.width), nn.Embedding(s.context, s.width)
            self.blocks = nn.ModuleList([Block(s) for _ in range(s.layers)])
            self.ln = nn.LayerNorm(s.width)

        def forward(self, tokens: Any, places: Any) -> Any:
            x = self.tokens(tokens) + self.places(places)
            for block in self.blocks:
                x = block(x)
            return F.linear(self.ln(x), self.tokens.weight)

    return GPT


def gpt(lib: Any, s: Setting, device: str, order: int = 0, seed: int = 0) -> Step:
    """A training step, AdamW, over batches that repeat; returns the loss.

    ``order`` shuffles samples and channels unless it is 0: the same model, whose sums are made in another order.
    """
    rng = np.random.default_rng(seed)
    model = gpt_class(lib)(s)
    set_weights(lib, model, rng, order)
    model = model.to(device)
    optimizer = lib.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    batches = rng.integers(0, s.vocabulary, (4, s.batch, s.context + 1))
    data = lib.tensor(_shuffled(batches, (1,), order), device=device)
    places = lib.arange(s.context, device=device)
    count = 0

    def step() -> Any:
        nonlocal count
        batch = data[count % 4]
        count += 1
        optimizer.zero_grad()
        with lib.autocast(device, dtype=getattr(lib, s.autocast)) if s.autocast else nullcontext():
            logits = model(batch[:, :-1], places)
            loss = lib.nn.functional.cross_entropy(logits.reshape(-1, s.vocabulary), batch[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return step


def mlp(lib: Any, device: str, order: int = 0, seed: int = 0) -> Step:
    """A training step of 784-256-256-10 on a batch of 128, AdamW; ``order`` shuffles samples and channels unless 0."""
    nn, rng = lib.nn, np.random.default_rng(seed)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    set_weights(lib, model, rng, order)
    model = model.to(device)
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    samples = _shuffled(rng.standard_normal((128, 784), np.float32), (0, 1), order)
    classes = _shuffled(rng.integers(0, 10, 128), (0,), order)
    x, y = lib.tensor(samples, device=device), lib.tensor(classes, device=device)
    loss_of = nn.CrossEntropyLoss()

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


_CHANNELS = {
    "tokens": (1,), "places": (1,), "qkv": (1,), "out": (0,), "up": (0, 1), "down": (0, 1),
    "0": (0, 1), "2": (0, 1), "4": (1,),
}  # fmt: skip
"""By layer, the dimensions of its weight that are channels whose order is free: not those of heads or classes."""


def _shuffled(array: np.ndarray, dims: tuple[int, ...], order: int) -> np.ndarray:
    """The array with these dimensions in an order that depends on their size alone; as it is if ``order`` is 0."""
    for dim in dims if order else ():
        array = array.take(np.random.default_rng(order).permutation(array.shape[dim]), dim)
    return array


def set_weights(lib: Any, model: Any, rng: np.random.Generator, order: int) -> None:
    """GPT-2's initial weights, the same in both libraries; ``order`` is that of channels."""
    with lib.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                drawn = rng.standard_normal(tuple(parameter.shape), np.float32) * np.float32(0.02)
                parameter.copy_(lib.tensor(_shuffled(drawn, _CHANNELS[name.split(".")[-2]], order)))
            elif "ln" not in name:
                parameter.zero_()
