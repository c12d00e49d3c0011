"""Records what training GPT-2 small allocates and frees: ``python -m benchmarks.record`` writes ``benchmarks/traces``.

PyTorch runs the model on its meta device, where tensors have sizes but no elements, and every storage that appears or
dies is noted: no GPU and no time are needed. What libraries allocate inside a kernel does not show, nor what a fused
kernel would have saved; the sizes and the order are those of eager fp32 training with a fused optimizer.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import random
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

TRACES = pathlib.Path(__file__).parent / "traces"
LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT = 12, 12, 768, 50257, 1024


class Recorder(TorchDispatchMode):
    """Notes storages: their bytes when they appear, minus their number, counted from 1, when they die."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[int] = []
        self._count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: Any) -> None:
        if storage.nbytes() and not hasattr(storage, "_noted"):
            storage._noted = True
            self._count += 1
            self.events.append(storage.nbytes())
            weakref.finalize(storage, self.events.append, -self._count).atexit = False


class Layer(nn.Module):
    """Attention and a multilayer perceptron, both on the residual path."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.project(self.norms[0](x)).view(batch, length, 3 * HEADS, WIDTH // HEADS).transpose(1, 2)
        query, key, value = heads.chunk(3, dim=1)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        scores = (query @ key.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5).masked_fill(~mask, -torch.inf)
        mixed = F.dropout(scores.softmax(-1), 0.1) @ value
        x = x + F.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH)), 0.1)
        return x + F.dropout(self.mlp(self.norms[1](x)), 0.1)


class GPT(nn.Module):
    """GPT-2 small, its output projection tied to its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


def record(lengths: Iterable[int], batch: int) -> dict[str, Any]:
    """The events of training steps on sequences of these lengths, and where each step ends."""
    recorder = Recorder()
    ends = []
    with recorder, torch.device("meta"):
        model = GPT()
        states = [(torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()]
        for length in lengths:
            step(model, torch.empty(batch, length + 1, dtype=torch.int64))
            ends.append(len(recorder.events))
    del states
    return {"events": recorder.events[: ends[-1]], "step_ends": ends}


def step(model: GPT, tokens: torch.Tensor) -> None:
    """One training step; the fused optimizer changes its state in place and allocates nothing."""
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    model.zero_grad(set_to_none=True)


def record_telegrad(steps: int) -> dict[str, Any]:
    """What telegrad's own engine allocates for training steps of six layers with GELU and layer norm, AdamW."""
    import telegrad as tg
    from server.worker.host import Host

    host = Host(["cpu"])
    events, numbers, ends = [], dict[int, int](), []

    def observe(entry: dict[str, Any]) -> None:
        if entry["action"] == "alloc":
            numbers[entry["addr"]] = sum(event > 0 for event in events) + 1
            events.append(entry["size"])
        elif entry["action"] == "free_completed":
            events.append(-numbers.pop(entry["addr"]))

    host.backend("cpu").allocator.attach_observer(observe)
    with tg.connect(in_process=host):
        layers = [layer for _ in range(6) for layer in (tg.nn.Linear(256, 256), tg.nn.GELU(), tg.nn.LayerNorm(256))]
        model = tg.nn.Sequential(*layers)
        optimizer, x = tg.optim.AdamW(model.parameters(), lr=1e-3), tg.randn(64, 256)
        for _ in range(steps):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
            tg.cuda.synchronize()
            ends.append(len(events))
    return {"events": events[: ends[-1]], "step_ends": ends}


def write(name: str, about: str, **trace: Any) -> None:
    """Keep a trace."""
    text = json.dumps({"about": about, **trace}, separators=(",", ":"))
    (TRACES / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(name, len(trace["events"]), "events,", len(trace["step_ends"]), "steps")


def main() -> None:
    """Record the traces that the study and the tests replay."""
    TRACES.mkdir(exist_ok=True)
    write("telegrad-layers", "telegrad, six layers of width 256, batch 64, AdamW", **record_telegrad(20))
    write("gpt2-small", "GPT-2 small, fp32, batch 8 of 1024 tokens", **record([CONTEXT] * 3, 8))
    rising = range(128, CONTEXT + 1, 32)
    write("gpt2-rising", "GPT-2 small, fp32, batch 8 of 128 to 1024 tokens, rising", **record(rising, 8))
    mixed = random.Random(1).choices(range(64, CONTEXT + 1), k=30)
    write("gpt2-mixed", "GPT-2 small, fp32, batch 8 of 64 to 1024 tokens at random", **record(mixed, 8))


if __name__ == "__main__":
    main()
