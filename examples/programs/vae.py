"""A variational autoencoder on small pictures of bars: Normal, kl_divergence, DataLoader, plain PyTorch."""

from __future__ import annotations

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    """An encoder into four normal variables, and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 64))

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        mean, log_scale = self.encoder(x).chunk(2, dim=-1)
        posterior = Normal(mean, log_scale.exp())
        logits = self.decoder(mean + noise * posterior.scale)
        divergence = kl_divergence(posterior, Normal(torch.zeros_like(mean), torch.ones_like(mean)))
        likelihood = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
        return (likelihood + divergence.sum(-1)).mean()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = np.random.default_rng(options.seed)
    pictures = np.zeros((256, 8, 8), np.float32)
    pictures[np.arange(256), draw.integers(0, 8, 256)] = 1
    model = VAE()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(draw.standard_normal(tuple(parameter.shape)).astype("float32")) / 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batches = DataLoader(TensorDataset(torch.from_numpy(pictures).flatten(1)), batch_size=64)
    for _ in range(options.epochs):
        total = 0.0
        for (x,) in batches:
            noise = torch.from_numpy(draw.standard_normal((len(x), 4)).astype("float32"))
            optimizer.zero_grad()
            loss = model(x, noise)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"{total / len(batches):.6f}")


if __name__ == "__main__":
    main()
