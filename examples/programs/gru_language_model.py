"""A language model of letters with a GRU, plain PyTorch."""

from __future__ import annotations

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXT = "the quick brown fox jumps over the lazy dog and the dog sleeps on while the fox runs home over the hill " * 4
LETTERS = sorted(set(TEXT))


class Windows(Dataset):
    """Pieces of the text, and the same pieces one letter later."""

    def __init__(self, length: int) -> None:
        self.codes = np.array([LETTERS.index(letter) for letter in TEXT])
        self.length = length

    def __len__(self) -> int:
        return (len(self.codes) - 1) // self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.length
        piece = torch.from_numpy(self.codes[start : start + self.length + 1])
        return piece[:-1], piece[1:]


class Model(nn.Module):
    """An embedding, a recurrent layer, and log odds of the next letter."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS), 16)
        self.recurrent = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, len(LETTERS))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Return log odds of what comes after each letter."""
        hidden, _ = self.recurrent(self.embedding(letters))
        return self.head(hidden)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = np.random.default_rng(options.seed)
    model = Model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(draw.standard_normal(tuple(parameter.shape)).astype("float32")) / 5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batches = DataLoader(Windows(20), batch_size=8, drop_last=True)
    for _ in range(options.epochs):
        total = 0.0
        for letters, following in batches:
            loss = F.cross_entropy(model(letters).flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"{total / len(batches):.6f}")


if __name__ == "__main__":
    main()
