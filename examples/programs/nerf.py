"""A small NeRF: positional encoding, stratified samples along rays, volume rendering of two balls."""

# test: --steps 10
# agree: 5e-3

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NEAR, FAR = 2.0, 6.0


class Rays(NamedTuple):
    """Origins and directions, [N, 3]."""

    origins: torch.Tensor
    directions: torch.Tensor


def get_rays(height: int, width: int, focal: float, pose: torch.Tensor) -> Rays:
    """Return a ray for each pixel of a camera."""
    i, j = torch.meshgrid(torch.arange(width, dtype=torch.float32), torch.arange(height, dtype=torch.float32),
                          indexing="xy")  # fmt: skip
    directions = torch.stack([(i - width * 0.5) / focal, -(j - height * 0.5) / focal, -torch.ones_like(i)], dim=-1)
    directions = (directions[..., None, :] * pose[:3, :3]).sum(-1)
    return Rays(pose[:3, 3].expand(directions.shape).reshape(-1, 3), directions.reshape(-1, 3))


def look_from(angle: float) -> torch.Tensor:
    """Return the pose of a camera 4 units from the origin that looks at it."""
    turn = torch.eye(4)
    turn[0, 0] = turn[2, 2] = np.cos(angle)
    turn[0, 2], turn[2, 0] = np.sin(angle), -np.sin(angle)
    back = torch.eye(4)
    back[2, 3] = 4.0
    return turn @ back


class Embedder:
    """x, and sines and cosines of it at doubling frequencies."""

    def __init__(self, frequencies: int) -> None:
        self.bands = 2.0 ** torch.linspace(0.0, frequencies - 1, frequencies)
        self.size = 3 + 6 * frequencies

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        angles = x[..., None] * self.bands.to(x.device)
        return torch.cat([x, torch.sin(angles).flatten(-2), torch.cos(angles).flatten(-2)], dim=-1)


class NeRF(nn.Module):
    """Density and colour of points, with a skip connection."""

    def __init__(self, embedder: Embedder, width: int) -> None:
        super().__init__()
        self.embedder = embedder
        self.first = nn.Linear(embedder.size, width)
        self.second = nn.Linear(width + embedder.size, width)
        self.density, self.color = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embedder(points)
        h = F.relu(self.first(x))
        h = F.relu(self.second(torch.concat([h, x], dim=-1)))
        return F.softplus(self.density(h)).squeeze(-1), torch.sigmoid(self.color(h))


class TwoBalls(nn.Module):
    """The scene: a red ball and a small blue one."""

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        red = (points.norm(dim=-1) < 1.0).float()
        blue = ((points - points.new_tensor([1.2, 0.4, 0.0])).norm(dim=-1) < 0.5).float()
        color = red[..., None] * points.new_tensor([0.9, 0.2, 0.1])
        color = torch.where(blue[..., None] > 0, torch.tensor([0.1, 0.3, 0.9], device=points.device), color)
        return 8.0 * torch.maximum(red, blue), color


def render(field: nn.Module, rays: Rays, samples: int, jitter: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Return colour, [N, 3], depth and opacity, [N]."""
    t = torch.linspace(NEAR, FAR, samples, device=rays.origins.device).expand(rays.origins.shape[0], samples)
    if jitter is not None:
        middle = 0.5 * (t[:, 1:] + t[:, :-1])
        upper, lower = torch.cat([middle, t[:, -1:]], -1), torch.cat([t[:, :1], middle], -1)
        t = lower + (upper - lower) * jitter
    points = rays.origins[:, None, :] + rays.directions[:, None, :] * t[..., :, None]
    sigma, color = field(points)
    delta = torch.diff(t, append=torch.full_like(t[:, :1], 1e10)) * rays.directions.norm(dim=-1, keepdim=True)
    alpha = 1.0 - torch.exp(-sigma * delta)
    passing = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], dim=-1), dim=-1)[:, :-1]
    weights = alpha * passing
    opacity = weights.sum(-1)
    rgb = (weights[..., None] * color).sum(dim=-2) + (1.0 - opacity[..., None])
    return rgb, (weights * t).sum(-1), opacity


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--rays", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw, size = np.random.default_rng(args.seed), 20
    views = [get_rays(size, size, 20.0, look_from(angle)) for angle in np.linspace(-1, 1, 5)]
    rays = Rays(*(torch.cat(parts).to(args.device) for parts in zip(*views)))
    with torch.no_grad():
        wanted, _, _ = render(TwoBalls(), rays, 64, None)
    train, test = slice(0, 4 * size * size), slice(4 * size * size, None)
    model = NeRF(Embedder(4), 48).to(args.device)
    for p in model.parameters():
        values = draw.uniform(-1, 1, p.shape) / np.sqrt(p.shape[-1])
        p.data = torch.as_tensor(values, dtype=torch.float32, device=p.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
    for step in range(args.steps):
        index = torch.from_numpy(draw.integers(0, train.stop, args.rays)).to(args.device)
        jitter = torch.from_numpy(draw.random((args.rays, args.samples), dtype=np.float32)).to(args.device)
        rgb, _, _ = render(model, Rays(rays.origins[index], rays.directions[index]), args.samples, jitter)
        loss = torch.mean((rgb - wanted[index]) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"step {step} mse {loss.item():.5f} psnr {-10 * torch.log10(loss).item():.3f}")
    with torch.no_grad():
        rgb, depth, opacity = render(model, Rays(*(part[test] for part in rays)), args.samples, None)
    mse = F.mse_loss(rgb, wanted[test])
    print(f"unseen view: mse {mse:.4f}, depth {depth.mean():.3f}, opacity {opacity.max():.3f}")


if __name__ == "__main__":
    main()
