"""A Wasserstein GAN with gradient penalty on eight Gaussians: gradients of gradients."""

# test: --steps 4
# agree: 2e-2

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import autograd, nn


def mlp(*widths: int, slope: float = 0.2) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.LeakyReLU(slope)]
    return nn.Sequential(*layers[:-1])


def eight_gaussians(batch: int, draw: np.random.Generator) -> Iterator[torch.Tensor]:
    angles = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    centers = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    while True:
        points = centers[draw.integers(0, 8, batch)] + 0.05 * draw.standard_normal((batch, 2))
        yield torch.from_numpy(points.astype("float32"))


def gradient_penalty(critic: nn.Module, real: torch.Tensor, fake: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
    between = torch.lerp(real, fake, mix).requires_grad_(True)
    scores = critic(between)
    (gradient,) = autograd.grad(
        outputs=scores,
        inputs=between,
        grad_outputs=torch.ones_like(scores),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )
    return ((gradient.norm(2, dim=1) - 1) ** 2).mean()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--critic-steps", type=int, default=5)
    parser.add_argument("--penalty", type=float, default=10.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = np.random.default_rng(args.seed)

    def noise(*size: int, uniform: bool = False) -> torch.Tensor:
        values = draw.random(size) if uniform else draw.standard_normal(size)
        return torch.as_tensor(values, dtype=torch.float32, device=args.device)

    generator, critic = mlp(4, 64, 64, 2).to(args.device), mlp(2, 64, 64, 1, slope=0.1).to(args.device)
    for network in (generator, critic):
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(False)
            parameter.copy_(noise(*parameter.shape) / parameter.shape[-1] ** 0.5 if "weight" in name else parameter * 0)
            parameter.requires_grad_(True)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    data = eight_gaussians(64, draw)
    for step in range(args.steps):
        for parameter in critic.parameters():
            parameter.requires_grad = True
        for _ in range(args.critic_steps):
            real = next(data).to(args.device)
            with torch.no_grad():
                fake = generator(noise(real.size(0), 4))
            penalty = gradient_penalty(critic, real, fake, noise(real.size(0), 1, uniform=True))
            distance = critic(real).mean() - critic(fake).mean()
            optimizer_c.zero_grad()
            (args.penalty * penalty - distance).backward()
            optimizer_c.step()
        for parameter in critic.parameters():
            parameter.requires_grad = False
        loss = -critic(generator(noise(64, 4))).mean()
        optimizer_g.zero_grad()
        loss.backward()
        optimizer_g.step()
        print(f"{step:3d} distance {distance.item():.4f} penalty {penalty.item():.4f} generator {loss.item():.4f}")
    with torch.no_grad():
        points = generator(noise(512, 4))
        radius = torch.linalg.vector_norm(points, dim=1)
    print(f"radius {radius.mean():.3f} +- {radius.std():.3f}")


if __name__ == "__main__":
    main()
