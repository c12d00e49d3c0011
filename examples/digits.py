"""Train a small network on the handwritten digits of scikit-learn, on a server that this script starts.

    python examples/digits.py                          # a private server: a GPU if there is one, else the CPU
    python examples/digits.py http://gpu-node:8000     # a server that is there already; TELEGRAD_TOKEN if it wants one

1,797 images of 8 x 8 pixels; 20 % are held out for the test.
"""

from __future__ import annotations

import sys

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import telegrad as tg
from telegrad import nn

EPOCHS, BATCH = 30, 64


def split(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, then test images and labels."""
    digits = load_digits()
    images = (digits.data / 16.0).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images))
    held_out, rest = np.split(order, [len(images) // 5])
    return images[rest], digits.target[rest], images[held_out], digits.target[held_out]


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else None
    with tg.connect(url) as connection:
        print(connection)
        tg.manual_seed(0)
        train_x, train_y, test_x, test_y = (tg.from_numpy(part) for part in split())
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
        optimizer = tg.optim.AdamW(model.parameters(), lr=3e-3)
        train(model, optimizer, train_x, train_y)
        print(f"test accuracy {accuracy(model, test_x, test_y):.2f}")
        print(tg.cuda.memory_summary(abbreviated=True))


def train(model: nn.Module, optimizer: tg.optim.Optimizer, images: tg.Tensor, labels: tg.Tensor) -> None:
    """Steps of 64 images; the loss is read once an epoch, for the progress bar, and nothing else waits."""
    steps, before = 0, tg.wire_stats()
    progress = tqdm(range(EPOCHS), desc="training", unit="epoch")
    for _ in progress:
        order = tg.randperm(len(images), device=images.device)
        for start in range(0, len(images), BATCH):
            batch = order[start : start + BATCH]
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        progress.set_postfix(loss=f"{loss.item():.4f}")
    after = tg.wire_stats()
    round_trips = after.round_trips - before.round_trips
    bytes_moved = after.bytes_sent - before.bytes_sent + after.bytes_received - before.bytes_received
    print(f"{steps} steps: {round_trips / steps:.3f} round trips and {bytes_moved / steps:,.0f} bytes per step")


def accuracy(model: nn.Module, images: tg.Tensor, labels: tg.Tensor) -> float:
    """The share of images whose digit the model tells."""
    model.eval()
    with tg.no_grad():
        right = (model(images).argmax(1) == labels).float().mean()
    model.train()
    return right.item()


if __name__ == "__main__":
    main()
