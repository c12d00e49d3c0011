"""Programs of the kinds that people run, in sizes that change: each makes a few steps and reads what comes out of them.

Sizes are drawn: lengths of sequences, sides of images, and how many samples there are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import telegrad as tg

nn, F = tg.nn, tg.nn.functional


class Sizes(NamedTuple):
    """What changes from step to step."""

    lengths: list[int]
    sides: list[tuple[int, int]]
    counts: list[int]


Program = Callable[[Sizes], None]


def drawn(seed: int) -> Sizes:
    """Sizes of a few steps; beside any others some that are multiples of what an access moves."""
    rng = np.random.default_rng(seed)
    lengths = [16, *rng.integers(2, 128, 3).tolist(), 8 * int(rng.integers(1, 16))]
    sides = [(int(a), int(b)) for a, b in rng.integers(20, 70, (2, 2))]
    even = [(4 * int(a), 8 * int(b)) for a, b in rng.integers(4, 12, (2, 2))]
    return Sizes(lengths, [*sides, *even], [2, *rng.integers(3, 130, 3).tolist(), 64])


class Block(nn.Module):
    """A transformer's block with attention of its own: masks, dropout and heads as people write them."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.dropout = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(dropout)

    def forward(self, x: Any, mask: Any) -> Any:
        n, t, width = x.shape
        q, k, v = [
            part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        ]
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        weights = self.dropout(scores.masked_fill(mask, float("-inf")).softmax(-1))
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).reshape(n, t, width)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norms[1](x)))))


class Written(nn.Module):
    """A language model of one such block."""

    def __init__(self, words: int = 65, width: int = 64, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width, padding_idx=0), nn.Embedding(128, width)
        self.block, self.norm, self.head = Block(width, heads, dropout), nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: Any) -> Any:
        t = tokens.shape[1]
        later = tg.triu(tg.ones(t, t, dtype=tg.bool), diagonal=1)
        mask = later | (tokens == 0)[:, None, None, :]
        x = self.words(tokens) + self.places(tg.arange(t))
        return self.head(self.norm(self.block(x, mask.logical_and(~tg.eye(t, dtype=tg.bool)))))


class Served(nn.Module):
    """A language model of the present kind: root-mean-square norms, rotated places, gated layers, shared heads."""

    def __init__(self, words: int = 65, width: int = 64, heads: int = 4, shared: int = 2) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.words, self.first, self.second = nn.Embedding(words, width), nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.pair = nn.Linear(width, 2 * shared * self.size, bias=False)
        self.out, self.gate, self.up, self.down = [
            nn.Linear(a, b, bias=False) for a, b in ((width, width), (width, 128), (width, 128), (128, width))
        ]
        self.head = nn.Linear(width, words, bias=False)

    def rotated(self, x: Any, at: int) -> Any:
        t, half = x.shape[2], self.size // 2
        angles = tg.arange(at, at + t).float()[:, None] / 1e4 ** (tg.arange(half).float() / half)
        sine, cosine = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return tg.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)

    def forward(self, tokens: Any, cache: Any = None) -> Any:
        x = self.words(tokens)
        n, t, width = x.shape
        y = self.first(x)
        q = self.query(y).view(n, t, self.heads, self.size).transpose(1, 2)
        k, v = [p.view(n, t, self.shared, self.size).transpose(1, 2) for p in self.pair(y).chunk(2, dim=-1)]
        at = 0 if not cache else cache[0].shape[2]
        q, k = self.rotated(q, at), self.rotated(k, at)
        if cache is not None:
            k, v = (tg.cat([cache[0], k], 2), tg.cat([cache[1], v], 2)) if cache else (k, v)
            cache[:] = k, v
        k, v = [part.repeat_interleave(self.heads // self.shared, dim=1) for part in (k, v)]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, width))
        y = self.second(x)
        return self.head(x + self.down(F.silu(self.gate(y)) * self.up(y)))


def _language(model: Any, optimizer: Callable[[Any], Any], autocast: Any = None, scaler: Any = None) -> Program:
    """Training steps over batches of other lengths, with clipped gradients."""

    def program(sizes: Sizes) -> None:
        made = model()
        steps = optimizer(made.parameters())
        for length in sizes.lengths:
            tokens = tg.randint(0, 65, (3, length + 1))
            steps.zero_grad()
            with tg.autocast("cpu", dtype=autocast) if autocast else nullcontext():
                logits = made(tokens[:, :-1])
                loss = F.cross_entropy(logits.reshape(-1, 65), tokens[:, 1:].reshape(-1))
            if scaler is None:
                loss.backward()
            else:
                scaled = scaler()
                scaled.scale(loss).backward()
                scaled.unscale_(steps)
            nn.utils.clip_grad_norm_(made.parameters(), 1.0)
            steps.step()
            loss.item()

    return program


def _sampling(dtype: Any) -> Program:
    """Tokens one after the other with a cache: the best, of the best few, or of those that make up most."""

    def program(sizes: Sizes) -> None:
        model = Served().to(dtype)
        with tg.no_grad():
            for batch, kind in ((1, "best"), (sizes.counts[1], "few"), (sizes.counts[2], "most")):
                tokens, cache = tg.randint(0, 65, (batch, sizes.lengths[1])), []
                for _ in range(6):
                    scores = model(tokens, cache)[:, -1].float() / 0.8
                    if kind == "best":
                        tokens = scores.argmax(-1, keepdim=True)
                        continue
                    if kind == "few":
                        least = scores.topk(10)[0][:, -1:]
                        scores = scores.masked_fill(scores < least, float("-inf"))
                    else:
                        ordered, places = scores.sort(descending=True)
                        ahead = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
                        scores = scores.scatter(1, places, ordered.masked_fill(ahead > 0.9, float("-inf")))
                    tokens = tg.multinomial(scores.softmax(-1), 1)
                tokens.tolist()

    return program


def _beams(sizes: Sizes) -> None:
    """Beam search: the best continuations of all beams, whose caches follow them."""
    model, width, words = Served(), 4, 65
    with tg.no_grad():
        for batch in (1, sizes.counts[1]):
            tokens, totals, cache = tg.ones(batch * width, sizes.lengths[1], dtype=tg.int64), tg.zeros(batch, width), []
            for _ in range(5):
                scores = model(tokens[:, -1:] if cache else tokens, cache)[:, -1].log_softmax(-1)
                candidates = (totals[:, :, None] + scores.view(batch, width, words)).view(batch, -1)
                totals, places = candidates.topk(width)
                beams = (places // words + tg.arange(batch)[:, None] * width).view(-1)
                cache[:] = [part.index_select(0, beams) for part in cache]
                tokens = tg.cat([tokens[beams], (places % words).view(-1, 1)], 1)
            best = tokens.view(batch, width, -1).gather(
                1, totals.argmax(1)[:, None, None].expand(batch, 1, tokens.shape[1])
            )
            best.tolist()


def _recurrent(sizes: Sizes) -> None:
    """A gated cell stepped through sequences of other lengths, with masked means."""
    cell, head = nn.Linear(24 + 32, 4 * 32), nn.Linear(32, 7)
    optimizer = tg.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
    for length, count in zip((5, 8, 13), sizes.counts, strict=False):
        x, ends = tg.randn(count, length, 24), tg.randint(1, length + 1, (count,))
        h = c = tg.zeros(count, 32)
        states = []
        for t in range(length):
            i, f, o, g = cell(tg.cat([x[:, t], h], 1)).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            states.append(h)
        inside = (tg.arange(length) < ends[:, None]).float()
        mean = (tg.stack(states, 1) * inside[:, :, None]).sum(1) / inside.sum(1, keepdim=True)
        loss = F.cross_entropy(head(mean), tg.randint(0, 7, (count,)), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(cell.parameters(), 0.5)
        optimizer.step()
        loss.item()


def _images(sizes: Sizes) -> None:
    """A small U-Net on images of other sizes."""
    downs = nn.ModuleList([nn.Conv2d(a, b, 3, 1, 1) for a, b in pairwise([3, 8, 16, 24])])
    ups = nn.ModuleList([nn.Conv2d(a, b, 3, 1, 1) for a, b in ((40, 16), (24, 8))])
    last = nn.Conv2d(8, 1, 1)
    optimizer = tg.optim.AdamW([*downs.parameters(), *ups.parameters(), *last.parameters()], lr=1e-3)
    for height, width in sizes.sides:
        x = tg.randn(2, 3, height, width)
        kept, y = [], x
        for number, layer in enumerate(downs):
            y = layer(F.max_pool2d(y, 2) if number else y).relu()
            kept.append(y)
        for layer, beside in zip(ups, kept[-2::-1], strict=True):
            grown = F.interpolate(y, size=beside.shape[-2:], mode="nearest")
            y = layer(tg.cat([grown, beside], 1)).relu()
        optimizer.zero_grad()
        loss = (last(y) - x.mean(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()


def _residual(dtype: Any, form: Any) -> Program:
    """Convolutions beside the identity, with norms of batches, on images of other sizes."""

    def program(sizes: Sizes) -> None:
        first, second, side = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.Conv2d(16, 16, 3, 1, 1), nn.Conv2d(16, 16, 1)
        model = nn.Sequential(first, nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        norm, head = nn.BatchNorm2d(16), nn.Linear(16, 10)
        parts = nn.ModuleList([model, second, side, norm, head]).to(dtype).to(memory_format=form)
        optimizer = tg.optim.SGD(parts.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
        for height, width in sizes.sides:
            images = tg.randint(0, 256, (4, 3, height, width), dtype=tg.uint8)
            x = ((images.to(dtype) / 255 - 0.5) / 0.25).contiguous(memory_format=form)
            y = model(x)
            y = (norm(second(y)) + side(y)).relu()
            loss = F.cross_entropy(head(F.adaptive_avg_pool2d(y, 1).flatten(1)), tg.randint(0, 10, (4,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()

    return program


def _episodes(sizes: Sizes) -> None:
    """REINFORCE on episodes of other lengths, an action at a time, with returns that count less the later they come."""
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = tg.optim.Adam(policy.parameters(), lr=1e-2)
    for length in sizes.lengths[1:3]:
        state, chosen = tg.zeros(4), []
        for _ in range(length):
            scores = policy(state).log_softmax(0)
            chosen.append(scores[int(scores.argmax().item())])
            state = tg.randn(4)
        returns = tg.flip(tg.cumsum(tg.rand(length), 0), (0,))
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        loss = -(tg.stack(chosen) * returns).mean() * length
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def _batches(sizes: Sizes) -> None:
    """A perceptron with norms of batches and dropout on batches of every size, and how often it is right."""
    model = nn.Sequential(nn.Linear(50, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 10))
    optimizer = tg.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    for count in sizes.counts:
        x, y = tg.randn(count, 50), tg.randint(0, 10, (count,))
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        (scores.argmax(1) == y).float().mean().item()
        (scores.topk(3)[1] == y[:, None]).any(1).sum().item()


def _losses(sizes: Sizes) -> None:
    """Losses beside cross entropy, with their gradients."""
    layer = nn.Linear(20, 9)
    for count in sizes.counts:
        x, wanted = tg.randn(count, 20), tg.randn(count, 9)
        for loss_of in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
            loss_of(layer(x), wanted).backward()
        F.binary_cross_entropy_with_logits(layer(x), (wanted > 0).float()).backward()
        F.kl_div(layer(x).log_softmax(1), wanted.softmax(1), reduction="batchmean").backward()
        F.nll_loss(layer(x).log_softmax(1), wanted.argmax(1)).backward()
        (1 - F.cosine_similarity(layer(x), wanted)).mean().backward()
        near, far = F.normalize(layer(x), dim=1), F.normalize(layer(x.flip(0)), dim=1)
        F.cross_entropy(near @ far.t() / 0.1, tg.arange(count)).backward()
        layer.weight.grad.norm().item()


def _noise(sizes: Sizes) -> None:
    """A denoising network with norms of groups and embedded times, and a shadow of its weights."""
    convolve, norm = nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16)
    back, times = nn.Conv2d(16, 3, 3, padding=1), nn.Linear(32, 16)
    parts = nn.ModuleList([convolve, norm, back, times])
    shadow = [p.detach().clone() for p in parts.parameters()]
    optimizer = tg.optim.AdamW(parts.parameters(), lr=1e-4)
    for height, width in sizes.sides:
        x, noise, at = tg.rand(4, 3, height, width) * 2 - 1, tg.randn(4, 3, height, width), tg.rand(4)
        angles = at[:, None] * tg.exp(-tg.arange(16).float() / 4)
        embedded = times(tg.cat([angles.sin(), angles.cos()], 1))
        noisy = at.sqrt()[:, None, None, None] * x + (1 - at).sqrt()[:, None, None, None] * noise
        y = F.silu(norm(convolve(noisy)) + embedded[:, :, None, None])
        loss = F.mse_loss(back(y), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with tg.no_grad():
            for kept, p in zip(shadow, parts.parameters(), strict=True):
                kept.mul_(0.99).add_(p, alpha=0.01)
        loss.item()


def _latent(sizes: Sizes) -> None:
    """An autoencoder with a drawn latent, on batches of other sizes."""
    encode, decode = nn.Linear(40, 2 * 6), nn.Linear(6, 40)
    optimizer = tg.optim.Adam([*encode.parameters(), *decode.parameters()], lr=1e-3)
    for count in sizes.counts:
        x = tg.rand(count, 40)
        mean, spread = encode(x).chunk(2, dim=1)
        z = mean + tg.randn_like(mean) * (0.5 * spread).exp()
        far = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1).mean()
        loss = F.binary_cross_entropy_with_logits(decode(z), x, reduction="sum") / count + far
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def _adamw(**options: Any) -> Callable[[Any], Any]:
    return lambda parameters: tg.optim.AdamW(parameters, lr=1e-3, **options)


PROGRAMS: dict[str, Program] = {
    "masks and dropout": _language(Written, _adamw()),
    "masks and dropout in bfloat16": _language(Written, _adamw(fused=True), tg.bfloat16),
    "masks and dropout in float16": _language(Written, _adamw(), tg.float16, lambda: tg.amp.GradScaler("cpu")),
    "present kind": _language(Served, _adamw(foreach=True)),
    "present kind in bfloat16": _language(lambda: Served().to(tg.bfloat16), _adamw()),
    "SGD": _language(Served, lambda p: tg.optim.SGD(p, lr=0.1)),
    "sampling": _sampling(tg.float32), "sampling in bfloat16": _sampling(tg.bfloat16),
    "sampling in float16": _sampling(tg.float16), "beam search": _beams, "recurrent": _recurrent,
    "images": _images, "residual": _residual(tg.float32, tg.contiguous_format),
    "residual, channels last, in bfloat16": _residual(tg.bfloat16, tg.channels_last),
    "episodes": _episodes, "batches": _batches, "losses": _losses, "noise": _noise, "latent": _latent,
}  # fmt: skip
