"""A residual network on scikit-learn's handwritten digits: BatchNorm, augmentation, a one-cycle schedule."""

# test: --steps 8 --width 8
# agree: 5e-2

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, Sampler


class Digits(Dataset):
    """Digits of 8 x 8 pixels; those for training are shifted and darkened at random."""

    def __init__(self, train: bool, draw: np.random.Generator) -> None:
        images, labels = load_digits(return_X_y=True)
        chosen = slice(0, 1500) if train else slice(1500, None)
        self.images = (images[chosen].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
        self.labels = labels[chosen]
        self.draw = draw if train else None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.images[index]
        if self.draw is not None:
            dy, dx = self.draw.integers(-1, 2, 2)
            image = np.roll(image, (dy, dx), axis=(1, 2)) * np.float32(self.draw.uniform(0.8, 1.0))
        return torch.from_numpy(image), int(self.labels[index])


class Shuffled(Sampler):
    """Indices in an order drawn with NumPy, so that it is the same with every library."""

    def __init__(self, count: int, draw: np.random.Generator) -> None:
        self.count, self.draw = count, draw

    def __iter__(self) -> Iterator[int]:
        return iter(self.draw.permutation(self.count).tolist())

    def __len__(self) -> int:
        return self.count


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    """A stem, three stages of which two halve the image, and a linear head."""

    def __init__(self, width: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = nn.Sequential(
            BasicBlock(width, width), BasicBlock(width, 2 * width, 2), BasicBlock(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stages(self.stem(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def initialise(model: nn.Module, draw: np.random.Generator) -> None:
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            fan_in = module.weight[0].numel()
            weight = draw.standard_normal(module.weight.shape) * np.sqrt(2 / fan_in)
            module.weight.data = torch.from_numpy(weight.astype(np.float32)).to(module.weight.device)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    model.eval()
    right = total = 0
    for images, labels in loader:
        predicted = model(images.to(device)).argmax(dim=1).cpu()
        right += (predicted == labels).sum().item()
        total += labels.size(0)
    model.train()
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw, device = np.random.default_rng(args.seed), torch.device(args.device)
    train, test = Digits(True, draw), Digits(False, draw)
    loader = DataLoader(train, args.batch_size, sampler=Shuffled(len(train), draw), drop_last=True)
    model = ResNet(args.width).to(device)
    initialise(model, draw)
    print(f"parameters: {sum(p.numel() for p in model.parameters() if p.requires_grad)}")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=args.steps)
    step = 0
    while step < args.steps:
        for images, labels in loader:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            print(f"step {step} lr {scheduler.get_last_lr()[0]:.5f} loss {loss.item():.4f}")
            if step == args.steps:
                break
    print(f"test accuracy {accuracy(model, DataLoader(test, 128), device):.2f}")


if __name__ == "__main__":
    main()
