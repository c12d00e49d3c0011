"""A vision transformer on handwritten digits, with augmentations drawn at random and computed on tensors."""

# test: --steps 9
# agree: spread

from __future__ import annotations

import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Dataset


def affine(images: torch.Tensor, angle: float = 0.0, shear: float = 0.0, scale: float = 1.0) -> torch.Tensor:
    theta = torch.tensor(
        [[math.cos(angle) * scale, -math.sin(angle) + shear, 0.0], [math.sin(angle), math.cos(angle) * scale, 0.0]],
        dtype=images.dtype,
        device=images.device,
    )
    grid = F.affine_grid(theta.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def erase(images: torch.Tensor, size: int) -> torch.Tensor:
    images = images.clone()
    top, left = random.randrange(8 - size), random.randrange(8 - size)
    images[..., top : top + size, left : left + size] = images.mean()
    return images


OPERATIONS = {
    "identity": lambda x, m: x,
    "rotate": lambda x, m: affine(x, angle=0.4 * m),
    "shear": lambda x, m: affine(x, shear=0.3 * m),
    "zoom": lambda x, m: affine(x, scale=1 + 0.2 * m),
    "translate": lambda x, m: torch.roll(x, shifts=(1 if m > 0 else -1, 0), dims=(-2, -1)),
    "brightness": lambda x, m: (x * (1 + 0.4 * m)).clamp(0, 1),
    "contrast": lambda x, m: torch.lerp(x.mean(dim=(-2, -1), keepdim=True), x, 1 + 0.4 * m),
    "posterize": lambda x, m: torch.floor(x * 8) / 8,
    "solarize": lambda x, m: torch.where(x > 0.9, 1 - x, x),
    "erase": lambda x, m: erase(x, 2),
}


class RandAugment:
    """Apply some operations, drawn anew for every batch, with a strength up to a magnitude."""

    def __init__(self, count: int = 2, magnitude: float = 0.5) -> None:
        self.count, self.magnitude = count, magnitude

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        for name in random.sample(sorted(OPERATIONS), self.count):
            images = OPERATIONS[name](images, random.uniform(-self.magnitude, self.magnitude))
        return images


class Digits(Dataset):
    def __init__(self, images, labels) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return torch.as_tensor(self.images[index], dtype=torch.float32).unsqueeze(0) / 16.0, int(self.labels[index])


class ViT(nn.Module):
    def __init__(self, patch=2, dim=48, depth=2, heads=4, classes=10, drop=0.1) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(1, dim, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, (8 // patch) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, drop, F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        return self.head(self.encoder(x)[:, 0])


def mixup(x: torch.Tensor, y: torch.Tensor, alpha: float) -> tuple[torch.Tensor, torch.Tensor]:
    lam = torch.distributions.Beta(alpha, alpha).sample().item()
    order = torch.randperm(x.size(0), device=x.device)
    target = F.one_hot(y, 10).to(x.dtype)
    return lam * x + (1 - lam) * x[order], lam * target + (1 - lam) * target[order]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)

    digits = load_digits()
    split = train_test_split(digits.images, digits.target, test_size=0.2, random_state=0)
    train_loader = DataLoader(Digits(split[0], split[2]), batch_size=64, shuffle=True, drop_last=True)
    test_loader = DataLoader(Digits(split[1], split[3]), batch_size=180)

    model, augment = ViT().to(args.device), RandAugment()
    no_decay = [p for n, p in model.named_parameters() if p.ndim <= 1 or n.endswith(("token", "embed"))]
    decay = [p for n, p in model.named_parameters() if not (p.ndim <= 1 or n.endswith(("token", "embed")))]
    optimizer = torch.optim.AdamW(
        [{"params": decay}, {"params": no_decay, "weight_decay": 0.0}], 3e-3, weight_decay=0.05
    )
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=5)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(args.steps - 5, 1))
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[5])
    step = 0
    while step < args.steps:
        for x, y in train_loader:
            x, y = mixup(augment(x.to(args.device)), y.to(args.device), alpha=0.4)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.5f}")
            step += 1
            if step == args.steps:
                break

    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in test_loader:
            right += (model(x.to(args.device)).argmax(-1) == y.to(args.device)).sum()
    print(f"test accuracy {right.item() / len(test_loader.dataset):.3f}")


if __name__ == "__main__":
    main()
