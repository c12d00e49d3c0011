"""A normalizing flow of affine couplings (RealNVP) that learns the density of two moons."""

# test: --steps 15
# agree: spread

from __future__ import annotations

import argparse

import torch
import torch.nn as nn
from sklearn.datasets import make_moons
from torch import distributions as D
from torch.distributions import constraints


class Coupling(nn.Module):
    """Half of the variables are scaled and shifted by what a network makes of the other half."""

    def __init__(self, dim: int, hidden: int, mask: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.LeakyReLU(0.1),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(0.1),
            nn.Linear(hidden, 2 * dim),
        )
        self.scale_limit = nn.Parameter(torch.ones(dim))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def _scale_and_shift(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_scale, shift = self.net(x * self.mask).chunk(2, dim=-1)
        free = 1 - self.mask
        return torch.tanh(log_scale) * self.scale_limit * free, shift * free

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_scale, shift = self._scale_and_shift(x)
        return x * log_scale.exp() + shift, log_scale.sum(dim=-1)

    def inverse(self, y: torch.Tensor) -> torch.Tensor:
        log_scale, shift = self._scale_and_shift(y)
        return (y - shift) * (-log_scale).exp()


class ActNorm(nn.Module):
    """Scales and shifts, which the first batch sets so that what comes out has mean 0 and deviation 1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.log_scale, self.bias = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("initialized", torch.tensor(False))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.initialized:
            with torch.no_grad():
                self.bias.copy_(-x.mean(0))
                self.log_scale.copy_(-torch.log(x.std(0) + 1e-6))
                self.initialized.fill_(True)
        return (x + self.bias) * self.log_scale.exp(), self.log_scale.sum().expand(x.shape[:-1])

    def inverse(self, y: torch.Tensor) -> torch.Tensor:
        return y * torch.exp(-self.log_scale) - self.bias


class RealNVP(nn.Module):
    def __init__(self, dim: int = 2, layers: int = 6, hidden: int = 32) -> None:
        super().__init__()
        masks = [torch.arange(dim).add(i).remainder(2).float() for i in range(layers)]
        self.steps = nn.ModuleList([m for mask in masks for m in (ActNorm(dim), Coupling(dim, hidden, mask))])
        self.register_buffer("loc", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))

    @property
    def base(self) -> D.Distribution:
        return D.Independent(D.Normal(self.loc, self.scale), 1)

    def log_prob(self, x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(x.shape[:-1])
        for step in self.steps:
            x, log_det = step(x)
            total = total + log_det
        return self.base.log_prob(x) + total

    @torch.no_grad()
    def sample(self, count: int) -> torch.Tensor:
        z = self.base.sample(torch.Size([count]))
        for step in reversed(self.steps):
            z = step.inverse(z)
        return z


class Squash(D.Transform):
    """The standardised data; a transform of one's own, with its Jacobian."""

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, mean: torch.Tensor, std: torch.Tensor) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def _call(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.std + self.mean

    def _inverse(self, y: torch.Tensor) -> torch.Tensor:
        return (y - self.mean) / self.std

    def log_abs_det_jacobian(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.std.log().sum(-1).expand(x.shape[:-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    points, _ = make_moons(2048, noise=0.06, random_state=args.seed)
    data = torch.tensor(points, dtype=torch.float32, device=args.device)
    squash = Squash(data.mean(0), data.std(0, unbiased=False))

    flow = RealNVP().to(args.device)
    optimizer = torch.optim.Adam(flow.parameters(), lr=5e-3, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.998)
    for step in range(args.steps):
        batch = data[torch.randint(0, len(data), (256,), device=data.device)]
        x = squash.inv(batch)
        loss = -(flow.log_prob(x) - squash.log_abs_det_jacobian(x, batch)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_value_(flow.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        print(f"step {step} loss {loss.item():.4f}")

    samples = squash(flow.sample(512))
    there_and_back = flow.base.sample((8,))
    y = there_and_back
    for step in reversed(flow.steps):
        y = step.inverse(y)
    for step in flow.steps:
        y, _ = step(y)
    assert torch.allclose(y, there_and_back, atol=1e-3)
    mixture = D.MixtureSameFamily(
        D.Categorical(torch.ones(2)),
        D.Independent(D.Normal(torch.tensor([[0.0, 0.5], [1.0, 0.0]]), torch.full((2, 2), 0.5)), 1),
    )
    print(f"nearest data {torch.cdist(samples, data).min(dim=1).values.mean().item():.3f}")
    print(f"under a plain mixture {mixture.log_prob(samples.cpu()).mean().item():.3f}")


if __name__ == "__main__":
    main()
