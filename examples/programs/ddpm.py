"""Denoising diffusion on scikit-learn's digits: cosine schedule, time embedding, EMA, ancestral and DDIM sampling."""

# test: --steps 12 --timesteps 20 --width 16
# agree: spread

from __future__ import annotations

import argparse
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor


def cosine_beta_schedule(timesteps: int, s: float = 0.008) -> Tensor:
    steps = torch.linspace(0, timesteps, timesteps + 1, dtype=torch.float64) / timesteps
    alphas_cumprod = torch.cos((steps + s) / (1 + s) * math.pi * 0.5) ** 2
    alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
    return torch.clip(1 - alphas_cumprod[1:] / alphas_cumprod[:-1], 0, 0.999)


class SinusoidalEmbedding(nn.Module):
    """Sines and cosines of the time."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, time: Tensor) -> Tensor:
        half = self.dim // 2
        frequencies = torch.exp(torch.arange(half, device=time.device) * -(math.log(10000) / (half - 1)))
        angles = time[:, None] * frequencies[None, :]
        return torch.cat((angles.sin(), angles.cos()), dim=-1)


class Block(nn.Module):
    """Two convolutions; the time scales and shifts what is between them."""

    def __init__(self, c_in: int, c_out: int, time_dim: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(1, c_in), nn.Conv2d(c_in, c_out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, c_out), nn.Conv2d(c_out, c_out, 3, padding=1)
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time_dim, 2 * c_out))
        self.skip = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(time)[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.conv2(F.silu(h)) + self.skip(x)


class Denoiser(nn.Module):
    """Predicts the noise in pictures of 8 x 8 pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.time = nn.Sequential(SinusoidalEmbedding(width), nn.Linear(width, width), nn.GELU())
        self.down, self.middle = Block(1, width, width), Block(width, width, width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up = Block(2 * width, width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = self.time(t)
        first = self.down(x, time)
        h = self.middle(F.avg_pool2d(first, 2), time)
        tokens = h.flatten(2).transpose(1, 2)
        h = h + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape_as(h)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return self.out(self.up(torch.cat([first, h], dim=1), time))


class Diffusion(nn.Module):
    """The process that adds noise, and its reverse."""

    alphas_cumprod: Tensor
    betas: Tensor

    def __init__(self, model: nn.Module, timesteps: int) -> None:
        super().__init__()
        self.model, self.timesteps = model, timesteps
        betas = cosine_beta_schedule(timesteps)
        self.register_buffer("betas", betas.float())
        self.register_buffer("alphas_cumprod", torch.cumprod(1 - betas, dim=0).float())

    def extract(self, a: Tensor, t: Tensor, x_shape: torch.Size) -> Tensor:
        return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))

    def forward(self, x: Tensor) -> Tensor:
        t = torch.randint(0, self.timesteps, (x.shape[0],), device=x.device).long()
        noise, a = torch.randn_like(x), self.extract(self.alphas_cumprod, t, x.shape)
        return F.mse_loss(self.model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)

    @torch.no_grad()
    def sample(self, count: int, eta: float = 1.0) -> Tensor:
        """Return pictures; eta=0 is DDIM, which adds no noise on the way."""
        device = self.betas.device
        x = torch.randn((count, 1, 8, 8), device=device)
        for i in reversed(range(self.timesteps)):
            t = torch.full((count,), i, device=device, dtype=torch.long)
            a, before = self.alphas_cumprod[i], self.alphas_cumprod[i - 1] if i > 0 else torch.ones((), device=device)
            noise = self.model(x, t)
            x0 = ((x - (1 - a).sqrt() * noise) / a.sqrt()).clamp_(-1.0, 1.0)
            sigma = eta * ((1 - before) / (1 - a) * (1 - a / before)).sqrt()
            x = before.sqrt() * x0 + (1 - before - sigma**2).clamp(min=0).sqrt() * noise
            if i > 0:
                x = x + sigma * torch.randn_like(x)
        return x


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--timesteps", type=int, default=60)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    images = torch.from_numpy(load_digits().images).to(torch.float32).unsqueeze(1).to(args.device) / 8 - 1
    diffusion = Diffusion(Denoiser(args.width), args.timesteps).to(args.device)
    average = copy.deepcopy(diffusion).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(diffusion.parameters(), lr=2e-3)
    for step in range(args.steps):
        batch = images[torch.randint(len(images), (64,), device=images.device)]
        loss = diffusion(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for ema, now in zip(average.parameters(), diffusion.parameters()):
                ema.lerp_(now, min(0.1, 1 / (step + 1)) if step > 10 else 1.0)
        print(f"step {step:3d} loss {loss.item():.4f}")
    for name, eta in (("DDPM", 1.0), ("DDIM", 0.0)):
        made = average.sample(16, eta)
        print(f"{name} mean {made.mean().item():.3f} deviation {made.std().item():.3f}")


if __name__ == "__main__":
    main()
