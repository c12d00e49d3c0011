"""Programs of other kinds than those that are measured elsewhere, beside PyTorch eager: ``python -m benchmarks.kinds``.

What people write themselves: optimizers, sums by index, beams, samplers, critics with penalties, batches of every size.
``[--device D] [--only WORD] [--save NAME]``. The first pass is told apart from the median of later ones; there are no
goals but to be no slower. telegrad goes through a real client and server.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .changing import Row, Work, table
from .searching_kinds import SEARCHING


def _translation(lib: Any, device: str) -> Work:
    """A Transformer of both kinds of layers on sentences of other lengths, with padding, masks and a schedule."""
    nn, rng = lib.nn, np.random.default_rng(7)
    model = nn.Transformer(128, 4, 2, 2, 256, dropout=0.1, batch_first=True).to(device)
    embed, out = nn.Embedding(300, 128).to(device), nn.Linear(128, 300).to(device)
    parameters = [*model.parameters(), *embed.parameters(), *out.parameters()]
    optimizer = lib.optim.Adam(parameters, 1e-4)
    schedule = lib.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 10, 1))
    pairs = [[rng.integers(1, 300, (16, n)) for n in rng.integers(8, 30, 2).tolist()] for _ in range(10)]

    def work() -> None:
        for pair in pairs:
            source, target = (lib.as_tensor(part).to(device) for part in pair)
            padded = source == 1
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1] - 1, device=device)
            seen = model(
                embed(source), embed(target[:, :-1]), tgt_mask=mask, src_key_padding_mask=padded,
                memory_key_padding_mask=padded, tgt_is_causal=True,
            )  # fmt: skip
            loss = nn.functional.cross_entropy(out(seen).transpose(1, 2), target[:, 1:], ignore_index=1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
            schedule.step()
        loss.item()

    return work


def _ragged(lib: Any, device: str) -> Work:
    """A perceptron on batches of 30 sizes, with a norm of batches, dropout and Nesterov's momentum."""
    nn, rng = lib.nn, np.random.default_rng(4)
    model = nn.Sequential(
        nn.Linear(32, 256), nn.GELU(), nn.BatchNorm1d(256), nn.Dropout(0.1), nn.Linear(256, 1)
    ).to(device)  # fmt: skip
    optimizer = lib.optim.SGD(model.parameters(), 1e-2, momentum=0.9, nesterov=True)
    batches = [rng.standard_normal((n, 32), dtype=np.float32) for n in rng.integers(20, 400, 30).tolist()]

    def work() -> None:
        total = lib.zeros((), device=device)
        for batch in batches:
            x = lib.from_numpy(batch).to(device)
            loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True).tanh())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        total.item()

    return work


def _values(lib: Any, device: str) -> Work:
    """Q-learning: an action at a time, a batch of what was seen, and a network that follows."""
    nn, rng = lib.nn, np.random.default_rng(6)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    target, optimizer = copy.deepcopy(model), lib.optim.RMSprop(model.parameters(), 1e-3)
    seen = rng.standard_normal((500, 8), dtype=np.float32)

    def work() -> None:
        for step in range(40):
            with lib.no_grad():
                model(lib.from_numpy(seen[step : step + 1]).to(device)).argmax(1).item()
            places = rng.integers(0, 499, 32)
            state, after = (lib.from_numpy(seen[places + n]).to(device) for n in (0, 1))
            actions = lib.as_tensor(rng.integers(0, 4, 32)).to(device)
            rewards = lib.as_tensor(rng.standard_normal(32, dtype=np.float32)).to(device)
            with lib.no_grad():
                wanted = rewards + 0.99 * target(after).max(1).values
            values = model(state).gather(1, actions[:, None]).squeeze(1)
            loss = nn.functional.smooth_l1_loss(values, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with lib.no_grad():
                for p, q in zip(model.parameters(), target.parameters(), strict=True):
                    q.lerp_(p, 0.01)
        loss.item()

    return work


def _own_optimizer(lib: Any, device: str) -> Work:
    """Adam as people write it, whose corrections are other numbers in each step."""
    nn, rng = lib.nn, np.random.default_rng(3)
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    ).to(device)  # fmt: skip
    x = lib.from_numpy(rng.standard_normal((256, 64), dtype=np.float32)).to(device)
    labels, state = lib.as_tensor(rng.integers(0, 10, 256)).to(device), dict[Any, Any]()

    def work() -> None:
        for _ in range(20):
            loss = nn.functional.cross_entropy(model(x), labels)
            model.zero_grad()
            loss.backward()
            with lib.no_grad():
                for p in model.parameters():
                    s = state.setdefault(p, {"m": lib.zeros_like(p), "v": lib.zeros_like(p), "t": 0})
                    s["t"] += 1
                    gradient = p.grad + 0.01 * p
                    s["m"] = 0.9 * s["m"] + 0.1 * gradient
                    s["v"] = 0.999 * s["v"] + 0.001 * gradient * gradient
                    root = (s["v"] / (1 - 0.999 ** s["t"])).sqrt() + 1e-8
                    p -= 1e-3 * (s["m"] / (1 - 0.9 ** s["t"])) / root
        loss.item()

    return work


def _beams(lib: Any, device: str) -> Work:
    """Beam search of four beams with a gated cell, which asks in each step whether all have ended."""
    nn, beams = lib.nn, 4
    cell, embed = nn.GRUCell(64, 256).to(device), nn.Embedding(1000, 64).to(device)
    out = nn.Linear(256, 1000).to(device)

    def work() -> None:
        with lib.no_grad():
            h, token = lib.zeros(beams, 256, device=device), lib.zeros(beams, dtype=lib.long, device=device)
            scores = lib.tensor([0.0] + [-1e9] * (beams - 1), device=device)
            sequences = token[:, None]
            for _ in range(40):
                h = cell(embed(token), h)
                scores, best = (nn.functional.log_softmax(out(h), -1) + scores[:, None]).view(-1).topk(beams)
                source, token = best // 1000, best % 1000
                h, sequences = h[source], lib.cat([sequences[source], token[:, None]], 1)
                if (token == 999).all():
                    break
            scores.max().item()

    return work


def _sampling(lib: Any, device: str) -> Work:
    """Fifty steps of a diffusion's sampling, with a table of noise by step."""
    nn = lib.nn
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1),
        nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 3, 3, padding=1),
    ).to(device)  # fmt: skip
    kept = lib.cumprod(1 - lib.linspace(1e-4, 0.02, 50), 0).to(device)

    def work() -> None:
        with lib.no_grad():
            x = lib.randn(4, 3, 32, 32, device=device)
            for step in reversed(range(50)):
                noise, now = model(x), kept[step]
                before = kept[step - 1] if step else lib.ones((), device=device)
                clean = ((x - (1 - now).sqrt() * noise) / now.sqrt()).clamp(-1, 1)
                x = before.sqrt() * clean + (1 - before).sqrt() * noise
            x.abs().mean().item()

    return work


def _graphs(lib: Any, device: str) -> Work:
    """Attention between the ends of 12,000 edges, and sums by index."""
    nn, rng, nodes = lib.nn, np.random.default_rng(5), 2000
    sources, targets = lib.as_tensor(rng.integers(0, nodes, (2, 12000))).to(device)
    x = lib.from_numpy(rng.standard_normal((nodes, 64), dtype=np.float32)).to(device)
    labels = lib.as_tensor(rng.integers(0, 7, nodes)).to(device)
    embed, out, score = (nn.Linear(a, b).to(device) for a, b in ((64, 64), (64, 7), (128, 1)))
    optimizer = lib.optim.Adam([*embed.parameters(), *out.parameters(), *score.parameters()], 1e-2)

    def work() -> None:
        for _ in range(10):
            h = embed(x)
            weights = nn.functional.leaky_relu(score(lib.cat([h[sources], h[targets]], 1)).squeeze(1), 0.2)
            weights = (weights - weights.max()).exp()
            total = lib.zeros(nodes, device=device).scatter_add(0, targets, weights) + 1e-9
            rows = h[sources] * (weights / total[targets])[:, None]
            h = lib.zeros_like(h).index_add(0, targets, rows).relu()
            loss = nn.functional.cross_entropy(out(h), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss.item()

    return work


def _penalty(lib: Any, device: str) -> Work:
    """A critic whose gradients are to have the norm 1, which has second derivatives, and a generator against it."""
    nn = lib.nn
    generator = nn.Sequential(
        nn.ConvTranspose2d(32, 64, 4), nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 1, 4, 4), nn.Tanh()
    ).to(device)  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(),
        nn.Linear(1024, 1),
    ).to(device)  # fmt: skip
    of_generator, of_critic = (lib.optim.Adam(m.parameters(), 2e-4, betas=(0.5, 0.999)) for m in (generator, critic))
    real = lib.randn(32, 1, 16, 16).to(device)

    def work() -> None:
        for _ in range(10):
            made = generator(lib.randn(32, 32, 1, 1, device=device))
            share = lib.rand(32, 1, 1, 1, device=device)
            between = (share * real + (1 - share) * made.detach()).requires_grad_()
            (gradient,) = lib.autograd.grad(critic(between).sum(), between, create_graph=True)
            penalty = ((gradient.flatten(1).norm(2, 1) - 1) ** 2).mean()
            loss = critic(made.detach()).mean() - critic(real).mean() + 10 * penalty
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            loss = -critic(made).mean()
            of_generator.zero_grad()
            loss.backward()
            of_generator.step()
        loss.item()

    return work


PROGRAMS: Final[dict[str, Callable[[Any, str], Work]]] = {
    "translation": _translation, "batches of every size": _ragged, "Q-learning": _values,
    "an optimizer of one's own": _own_optimizer, "beam search": _beams, "sampling": _sampling,
    "graph attention": _graphs, "a critic with a penalty": _penalty, **SEARCHING,
}  # fmt: skip
ROWS: Final[dict[str, Row]] = {name: (make, 1.0, 1.0) for name, make in PROGRAMS.items()}


def main() -> int:
    """Print the table of programs of other kinds."""
    return table("python -m benchmarks.kinds", __doc__, ROWS, settling=3)


if __name__ == "__main__":
    sys.exit(main())
