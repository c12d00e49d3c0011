"""Metric learning: digits of one class come to lie close together, by a siamese network and hard triplets."""

# test: --steps 12
# agree: spread

from __future__ import annotations

import argparse
from collections import OrderedDict, defaultdict
from collections.abc import Iterator

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, Sampler


class Digits(Dataset):
    def __init__(self) -> None:
        digits = load_digits()
        self.images = torch.tensor(digits.images[:, None] / 16.0, dtype=torch.float)
        self.labels = torch.tensor(digits.target)

    def __len__(self) -> int:
        return self.labels.shape[0]

    def __getitem__(self, index: int) -> dict:
        return {"image": self.images[index], "label": self.labels[index], "index": index}


class ClassBalancedSampler(Sampler):
    """Batches of a few samples of each of a few classes."""

    def __init__(
        self, labels: torch.Tensor, classes: int, per_class: int, batches: int, generator: torch.Generator
    ) -> None:
        self.by_class = defaultdict(list)
        for index, label in enumerate(labels.tolist()):
            self.by_class[label].append(index)
        self.classes, self.per_class, self.batches, self.generator = classes, per_class, batches, generator

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self.batches):
            batch = []
            for c in torch.randperm(len(self.by_class), generator=self.generator)[: self.classes].tolist():
                members = self.by_class[c]
                picks = torch.randint(high=len(members), size=(self.per_class,), generator=self.generator)
                batch.extend(members[i] for i in picks)
            yield batch

    def __len__(self) -> int:
        return self.batches


class Encoder(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                [
                    ("conv1", nn.Conv2d(1, 16, 3, padding="same")),
                    ("act1", nn.PReLU()),
                    ("pool1", nn.MaxPool2d(2)),
                    ("conv2", nn.Conv2d(16, 32, 3, padding=1, groups=2)),
                    ("act2", nn.Hardswish()),
                    ("drop", nn.Dropout2d(0.1)),
                ]
            )
        )
        self.embed = nn.utils.parametrizations.weight_norm(nn.Linear(32 * 4 * 4, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(self.embed(torch.flatten(self.features(x), 1)), p=2.0, dim=-1)


def batch_hard(embeddings: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For every anchor the farthest of its class and the nearest of any other."""
    with torch.no_grad():
        distance = torch.cdist(embeddings, embeddings)
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        positive = torch.where(same, distance, -torch.inf).argmax(dim=1)
        negative = distance.masked_fill(same, torch.inf).argmin(dim=1)
    return embeddings[positive], embeddings.index_select(0, negative)


@torch.no_grad()
def recall_at_1(encoder: nn.Module, dataset: Digits, device: str) -> float:
    encoder.eval()
    embeddings = torch.cat([encoder(b["image"].to(device)) for b in DataLoader(dataset, batch_size=600)])
    labels = dataset.labels.to(device)
    similarity = embeddings @ embeddings.mT
    similarity[range(len(labels)), range(len(labels))] = -2.0
    return torch.eq(labels[similarity.max(dim=1)[1]], labels).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--margin", type=float, default=0.3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    generator = torch.Generator()
    generator.manual_seed(args.seed)

    dataset = Digits()
    sampler = ClassBalancedSampler(dataset.labels, 8, 4, args.steps, generator)
    loader = DataLoader(dataset, batch_sampler=sampler)
    encoder = Encoder().to(args.device)
    triplet = nn.TripletMarginLoss(margin=args.margin, p=2, swap=True)
    contrastive = nn.CosineEmbeddingLoss(margin=0.2)
    proxies = nn.Embedding(10, 16, max_norm=1.0).to(args.device)
    optimizer = torch.optim.RAdam([*encoder.parameters(), *proxies.parameters()], lr=5e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 10) * 0.99**s)
    for step, batch in enumerate(loader):
        images, labels = batch["image"].to(args.device), batch["label"].to(args.device)
        embeddings = encoder(images)
        positive, negative = batch_hard(embeddings, labels)
        loss = triplet(embeddings, positive, negative)
        other = (labels + torch.randint_like(labels, 1, 10)) % 10
        loss = loss + 0.5 * contrastive(embeddings, proxies(labels), torch.ones_like(labels))
        loss = loss + 0.5 * contrastive(embeddings, proxies(other), -torch.ones_like(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"step {step} loss {loss.item():.4f}")
    print(f"recall at 1: {recall_at_1(encoder, dataset, args.device):.3f}")


if __name__ == "__main__":
    main()
