"""Contrastive learning (SimCLR) on handwritten digits, then a linear probe on what was learnt without labels."""

# test: --steps 6
# agree: spread

from __future__ import annotations

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, random_split


class TwoViews(Dataset):
    """Each picture twice, each time moved, blurred and noisy in another way."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels
        kernel = torch.outer(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([1.0, 2.0, 1.0]))
        self.kernel = (kernel / kernel.sum())[None, None]

    def __len__(self) -> int:
        return self.images.size(0)

    def augment(self, x: torch.Tensor) -> torch.Tensor:
        dx, dy = torch.randint(-1, 2, (2,)).tolist()
        x = F.pad(x, (1, 1, 1, 1))[..., 1 + dy : 9 + dy, 1 + dx : 9 + dx]
        if torch.rand(()) < 0.3:
            x = F.conv2d(x.unsqueeze(0), self.kernel, padding="same").squeeze(0)
        x = x * torch.empty(1).uniform_(0.7, 1.3) + 0.05 * torch.randn_like(x)
        return x.clamp_(0, 1)

    def __getitem__(self, index: int):
        x = self.images[index]
        return (self.augment(x), self.augment(x)), self.labels[index]


class BasicBlock(nn.Module):
    def __init__(self, inplanes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or inplanes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return self.relu(out)


class SimCLR(nn.Module):
    def __init__(self, width: int = 16, out_dim: int = 32) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            BasicBlock(width, width),
            BasicBlock(width, 2 * width, 2),
            nn.AdaptiveAvgPool2d((1, 1)),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(
            nn.Linear(2 * width, 2 * width, bias=False),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, out_dim),
        )
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.projector(self.backbone(x)), dim=1)


def info_nce(features: torch.Tensor, temperature: float) -> torch.Tensor:
    """The loss of 2N normalised features, of which i and i + N are views of one picture."""
    n = features.size(0) // 2
    similarity = features @ features.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(features.device)
    return F.cross_entropy(similarity, target)


@torch.no_grad()
def probe(model: SimCLR, images: torch.Tensor, labels: torch.Tensor, train: int) -> float:
    """Accuracy of ridge regression on the features; its normal equations are solved on the device."""
    model.eval()
    features = model.backbone(images)
    features = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
    x, y = features[:train], F.one_hot(labels[:train], 10).type_as(features)
    weights = torch.linalg.solve(x.T @ x + 1e-2 * torch.eye(x.size(1), device=x.device), x.T @ y)
    return (features[train:] @ weights).argmax(dim=1).eq(labels[train:]).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.float32).unsqueeze(1).div_(16)
    labels = torch.from_numpy(digits.target)
    unlabelled, _ = random_split(TwoViews(images, labels), [1500, len(images) - 1500])
    sampler = BatchSampler(RandomSampler(unlabelled), args.batch_size, drop_last=True)
    loader = DataLoader(unlabelled, batch_sampler=sampler, num_workers=0, pin_memory=False)

    model = SimCLR().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=max(args.steps // 2, 1))
    batches = iter(loader)
    for step in range(args.steps):
        try:
            views, _ = next(batches)
        except StopIteration:
            batches = iter(loader)
            views, _ = next(batches)
        features = model(torch.cat(views, dim=0).to(args.device))
        loss = info_nce(features, args.temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"step {step} loss {loss.item():.4f}")
    print(f"linear probe {probe(model, images.to(args.device), labels.to(args.device), 1500):.3f}")


if __name__ == "__main__":
    main()
