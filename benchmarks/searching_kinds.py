"""Programs of `kinds` whose course depends on what they compute: clusters, particles, steps of other lengths, trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .changing import Work


def _clusters(lib: Any, device: str) -> Work:
    """K-means until the centres stay where they are: distances, the nearest, and means by index."""
    rng, count = np.random.default_rng(11), 16
    centres = rng.standard_normal((count, 8)) * 4
    points = lib.from_numpy((centres[rng.integers(0, count, 4000)] + rng.standard_normal((4000, 8))).astype(np.float32))
    points = points.to(device)

    def work() -> None:
        where = points[:count].clone()
        for _ in range(40):
            nearest = lib.cdist(points, where).argmin(1)
            sums = lib.zeros_like(where).index_add_(0, nearest, points)
            amounts = lib.zeros(count, device=device).index_add_(0, nearest, lib.ones(len(points), device=device))
            moved = lib.where(amounts[:, None] > 0, sums / amounts.clamp(min=1)[:, None], where)
            shift = (moved - where).norm(dim=1).max()
            where = moved
            if shift.item() < 1e-4:
                break

    return work


def _particles(lib: Any, device: str) -> Work:
    """A particle filter, which draws its particles anew where few of them carry the weight."""
    rng, count = np.random.default_rng(12), 500
    seen = np.cumsum(rng.standard_normal(50)).astype(np.float32).tolist()

    def work() -> None:
        with lib.no_grad():
            x, weights = lib.randn(count, device=device), lib.full((count,), 1 / count, device=device)
            for value in seen:
                x = x + lib.randn(count, device=device)
                weights = weights * lib.exp(-0.5 * (value - x) ** 2) + 1e-30
                weights = weights / weights.sum()
                if (1 / weights.square().sum()).item() < count / 2:
                    places = lib.rand(1, device=device) / count + lib.arange(count, device=device) / count
                    drawn = lib.searchsorted(weights.cumsum(0), places).clamp(max=count - 1)
                    x, weights = x[drawn], lib.full((count,), 1 / count, device=device)
            (x * weights).sum().item()

    return work


def _adaptive(lib: Any, device: str) -> Work:
    """A neural ordinary differential equation, whose steps are halved and doubled by their errors."""
    nn, rng = lib.nn, np.random.default_rng(13)
    field = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    optimizer = lib.optim.Adam(field.parameters(), 1e-3)
    begin, end = (lib.from_numpy(rng.standard_normal((64, 2), dtype=np.float32)).to(device) for _ in range(2))

    def work() -> None:
        for _ in range(5):
            y, t, h = begin, 0.0, 0.2
            while t < 1:
                h = min(h, 1 - t)
                first = field(y)
                second = field(y + h * first)
                error = (0.5 * h * (second - first)).detach().abs().max().item()
                if error <= 1e-2 or h < 1e-2:
                    y, t = y + 0.5 * h * (first + second), t + h
                    h *= 2 if error < 2e-3 else 1
                else:
                    h /= 2
            loss = (y - end).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss.item()

    return work


def _trees(lib: Any, device: str) -> Work:
    """A recursive network over trees of random shapes, one node after the other."""
    nn, rng = lib.nn, np.random.default_rng(14)
    embed, join, out = (m.to(device) for m in (nn.Embedding(100, 64), nn.Linear(128, 128), nn.Linear(64, 5)))
    optimizer = lib.optim.Adagrad([*embed.parameters(), *join.parameters(), *out.parameters()], 1e-2)

    def tree(leaves: int) -> Any:
        if leaves == 1:
            return int(rng.integers(0, 100))
        left = int(rng.integers(1, leaves))
        return tree(left), tree(leaves - left)

    trees = [(tree(n), int(rng.integers(0, 5))) for n in rng.integers(4, 16, 8).tolist()]

    def state(of: Any, words: Any) -> Any:
        if not isinstance(of, tuple):
            return words[of]
        gate, value = join(lib.cat([state(part, words) for part in of])).chunk(2)
        return gate.sigmoid() * value.tanh()

    def work() -> None:
        for of, label in trees:
            scores = out(state(of, embed.weight))
            loss = nn.functional.cross_entropy(scores[None], lib.tensor([label], device=device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss.item()

    return work


SEARCHING: Final[dict[str, Callable[[Any, str], Work]]] = {
    "k-means": _clusters, "a particle filter": _particles, "an equation with adaptive steps": _adaptive,
    "trees of every shape": _trees,
}  # fmt: skip
