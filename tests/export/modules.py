"""Modules that are exported, written once for PyTorch and for telegrad: each function takes the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A module, shapes of its float inputs in terms of named sizes, the sizes of the example, and other ones."""

    make: Callable[[Any], Any]
    inputs: dict[str, tuple[int | str, ...]]
    example: dict[str, int]
    others: list[dict[str, int]]
    limits: dict[str, dict[str, int]] = {}


def mlp(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))


def branches(lib: Any) -> Any:
    """Functions of which a tensor chooses one when the program runs."""

    class Branches(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = lib.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return lib.cond(
                x.mean() > 0, lambda a: (self.layer(a).sin(), a.sum(0)), lambda a: (a.cos() - 1, -a.sum(0)), (x,)
            )

    return Branches()


def shapes(lib: Any) -> Any:
    """Integers of all kinds that depend on sizes: products, sums, floors, ends of slices, sizes of new tensors."""

    class Shapes(lib.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> dict[str, Any]:
            b, t, c = x.shape
            half = t // 2
            pairs = x[:, : 2 * half].reshape(b, half, 2, c).mean(2)
            flat = x.view(b * t, c).expand(3, b * t, c)
            rows = lib.arange(t, dtype=lib.float32).view(1, t, 1) + x
            mask = lib.ones(t, t).tril(-1).bool()
            scores = lib.where(mask, lib.zeros(b, t, t), x @ x.transpose(1, 2))
            return {
                "pairs": pairs,
                "flat": flat.sum(0) / t,
                "rows": rows.flip(1)[:, (t + 2) // 3 :],
                "scores": scores,
                "parts": [lib.cat([x, lib.full((b, 1, c), 2.0)], 1).repeat(1, 2, 1), x.unfold(1, 2, 1).sum(-1)],
            }

    return Shapes()


def transformer(lib: Any) -> Any:
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            b, t, c = x.size()
            q, k, v = self.qkv(self.ln_1(x)).split(c, dim=2)
            q, k, v = [part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in (q, k, v)]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(50, 16), nn.Embedding(24, 16)
            self.blocks = nn.ModuleList([Block(16, 2) for _ in range(2)])
            self.ln_f, self.head = nn.LayerNorm(16), nn.Linear(16, 50, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, x: Any) -> Any:
            t = x.shape[1]
            assert t <= 24, "the sequence is longer than the table of positions"
            idx = (x.abs() * 7).long().clamp(max=49)
            h = self.wte(idx) + self.wpe(lib.arange(0, t, dtype=lib.long, device=x.device))
            for block in self.blocks:
                h = block(h)
            return self.head(self.ln_f(h))

    return GPT()


def convolution(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            )  # fmt: skip
            self.head = nn.Linear(4, 5)

        def forward(self, x: Any) -> tuple[Any, Any]:
            logits = self.head(self.body(x))
            return logits.softmax(-1), logits.argmax(-1)

    return Net()


def recurrent(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(3, 5, batch_first=True, num_layers=2)
            self.register_buffer("scale", lib.tensor([2.0]), persistent=False)

        def forward(self, x: Any, mask: Any) -> Any:
            y, (h, c) = self.rnn(x * mask.unsqueeze(-1))
            return {"y": y * self.scale, "state": [h, c]}

    return Net()


def with_state(lib: Any) -> Any:
    """Constants of the program, and buffers that a call writes to."""
    nn = lib.nn
    table = lib.tensor([[1.0, 2.0], [3.0, 4.0]])

    class Counter(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", lib.zeros(2))
            self.register_buffer("cache", lib.zeros(4, 2))
            self.register_buffer("steps", lib.zeros(1))
            self.weight = nn.Parameter(lib.tensor([[0.5, -1.0], [2.0, 0.25]]))

        def forward(self, x: Any) -> Any:
            self.seen.add_(x.sum(0))
            self.cache[1:3] = self.seen
            self.steps = self.steps + 1
            offsets = lib.tensor([10.0, 20.0])
            offsets[0] += 1
            return x @ self.weight @ table + offsets + self.cache.sum(0) * self.steps

    return Counter()


def folding(lib: Any) -> Any:
    """What depends on constants alone, some of it written to afterwards, returned, or cut to a size."""

    class Folding(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = lib.nn.Parameter(lib.arange(12.0).view(3, 4) / 7)

        def forward(self, x: Any) -> dict[str, Any]:
            b = x.shape[0]
            scaled = (self.weight.t() * 2 + 1).exp()
            changed = self.weight.clone()
            changed[:, 0].add_(x.sum())
            table = (self.weight.flatten() * 3)[:b]
            seen = scaled.reshape(3, 4)
            seen = seen + changed
            return {"y": x @ seen.t() + scaled.sum(), "kept": x * 0 + scaled[:, 0], "table": x[:, 0] + table.sum()}

    return Folding()


def autocast(lib: Any) -> Any:
    nn = lib.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            with lib.autocast("cpu", dtype=lib.bfloat16):
                h = self.b(self.a(x).relu())
            return h.float().softmax(-1)

    return Net()


def decoder(lib: Any) -> Any:
    """One step of decoding: a token of each sequence, its place, and the caches of keys and values, which it returns.

    The next token is drawn among the most likely ones; with one of them it is the most likely one.
    """
    nn, F = lib.nn, lib.nn.functional
    width, heads, length = 16, 2, 12

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(40, width), nn.Embedding(length, width)
            self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, 40, bias=False)
            self.best = 1

        def forward(self, token: Any, place: Any, keys: Any, values: Any) -> dict[str, Any]:
            b = token.shape[0]
            x = self.wte(token) + self.wpe(place)
            q, k, v = [part.view(b, heads, 1, -1) for part in self.qkv(x).chunk(3, -1)]
            places = lib.arange(length, device=token.device)
            is_new = (places == place.unsqueeze(1)).view(b, 1, length, 1)
            keys, values = lib.where(is_new, k, keys), lib.where(is_new, v, values)
            mask = (places <= place.unsqueeze(1)).view(b, 1, 1, length)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask).reshape(b, width)
            best = lib.topk(self.head(x + y), self.best)
            drawn = lib.multinomial(best.values.softmax(-1), 1)
            return {"token": best.indices.gather(1, drawn).squeeze(1), "keys": keys, "values": values}

    return Decoder()


def decoder_inputs(lib: Any, batch: int) -> dict[str, Any]:
    """Return what decoding begins with."""
    tokens, places = lib.arange(batch) + 3, lib.zeros(batch, dtype=lib.int64)
    caches = {name: lib.zeros(batch, 2, 12, 8) for name in ("keys", "values")}
    return {"token": tokens, "place": places, **caches}


CASES = {
    "branches": Case(branches, {"x": ("batch", 4)}, {"batch": 3}, [{"batch": size} for size in (5, 3, 2, 9)]),
    "mlp": Case(mlp, {"input": ("batch", 4)}, {"batch": 3}, [{"batch": 1}, {"batch": 17}]),
    "shapes": Case(
        shapes, {"x": ("batch", "time", 3)}, {"batch": 2, "time": 7},
        [{"batch": 1, "time": 2}, {"batch": 5, "time": 12}, {"batch": 3, "time": 13}], {"time": {"min": 2}},
    ),
    "transformer": Case(
        transformer, {"x": ("batch", "time")}, {"batch": 2, "time": 8},
        [{"batch": 1, "time": 1}, {"batch": 4, "time": 24}], {"time": {"max": 24}},
    ),
    "convolution": Case(
        convolution, {"x": ("batch", 3, "side", "side")}, {"batch": 2, "side": 12},
        [{"batch": 1, "side": 10}, {"batch": 3, "side": 21}], {"side": {"min": 6}},
    ),
    "recurrent": Case(
        recurrent, {"x": ("batch", 6, 3), "mask": ("batch", 6)}, {"batch": 2}, [{"batch": 1}, {"batch": 5}]
    ),
    "with_state": Case(with_state, {"x": ("batch", 2)}, {"batch": 3}, [{"batch": 1}, {"batch": 4}]),
    "folding": Case(folding, {"x": ("batch", 4)}, {"batch": 3}, [{"batch": 1}, {"batch": 11}], {"batch": {"max": 12}}),
    "autocast": Case(autocast, {"x": ("batch", 4)}, {"batch": 3}, [{"batch": 1}, {"batch": 6}]),
}  # fmt: skip


def shape_of(shape: tuple[int | str, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    """Return a shape for these sizes."""
    return tuple([sizes[size] if isinstance(size, str) else size for size in shape])


def dynamic(lib: Any, case: Case) -> dict[str, dict[int, Any]]:
    """Return what ``export`` is told of a case's dimensions."""
    dims = {name: lib.export.Dim(name, **case.limits.get(name, {})) for name in case.example}
    return {
        name: {dim: dims[size] for dim, size in enumerate(shape) if isinstance(size, str)}
        for name, shape in case.inputs.items()
    }
