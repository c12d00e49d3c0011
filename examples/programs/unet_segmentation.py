"""A U-Net that segments discs among bars: skip connections, transposed convolutions, cross entropy with Dice."""

# test: --steps 6 --width 8
# agree: 2e-2

from __future__ import annotations

import argparse
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZE = 32


def make_pictures(count: int, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return pictures with noise, float32[count, 1, SIZE, SIZE], and the class of every pixel: nothing, disc, bar."""
    y, x = np.mgrid[:SIZE, :SIZE]
    pictures, masks = np.zeros((count, 1, SIZE, SIZE)), np.zeros((count, SIZE, SIZE), np.int64)
    for picture, mask in zip(pictures, masks):
        place, across = draw.integers(2, SIZE - 6), draw.random() < 0.5
        mask[place : place + 3] = 2
        if across:
            mask[:] = mask.T.copy()
        for _ in range(draw.integers(1, 4)):
            (cy, cx), radius = draw.integers(4, SIZE - 4, 2), draw.integers(3, 7)
            mask[(y - cy) ** 2 + (x - cx) ** 2 < radius**2] = 1
        picture[0] = np.choose(mask, [0.0, 0.8, 0.6]) + 0.2 * draw.standard_normal((SIZE, SIZE))
    return torch.from_numpy(pictures).float(), torch.from_numpy(masks)


class DoubleConv(nn.Sequential):
    """Convolution, normalization, ReLU; twice."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(
            nn.Conv2d(c_in, c_out, 3, padding="same", bias=False),
            nn.GroupNorm(4, c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, padding="same", bias=False),
            nn.GroupNorm(4, c_out),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    """Doubles the size, and joins what the way down had at that size."""

    def __init__(self, c_in: int, c_out: int, learned: bool) -> None:
        super().__init__()
        if learned:
            self.up = nn.ConvTranspose2d(c_in, c_out, kernel_size=2, stride=2)
        else:
            self.up = nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(c_in, c_out, 1)
            )
        self.conv = DoubleConv(2 * c_out, c_out)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = self.up(x)
        dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    """Three sizes down and up again."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.first = DoubleConv(1, width)
        self.downs = nn.ModuleList(DoubleConv(a, b) for a, b in pairwise(widths))
        self.ups = nn.ModuleList([Up(4 * width, 2 * width, True), Up(2 * width, width, False)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = [self.first(x)]
        for down in self.downs:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.head(x)


def dice_loss(logits: Tensor, target: Tensor, eps: float = 1e-6) -> Tensor:
    probabilities = logits.softmax(dim=1)
    wanted = F.one_hot(target, logits.shape[1]).permute(0, 3, 1, 2).type_as(probabilities)
    overlap = torch.einsum("nchw,nchw->nc", probabilities, wanted)
    total = (probabilities + wanted).sum(dim=(-2, -1))
    return 1 - ((2 * overlap + eps) / (total + eps)).mean()


@torch.inference_mode()
def mean_iou(logits: Tensor, target: Tensor) -> list[float]:
    """Return intersection over union of each class."""
    classes = logits.size(1)
    confusion = torch.bincount((target * classes + logits.argmax(1)).flatten(), minlength=classes**2)
    confusion = confusion.reshape(classes, classes).double()
    union = confusion.sum(0) + confusion.sum(1) - confusion.diag()
    return (confusion.diag() / union.clamp(min=1)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = np.random.default_rng(args.seed)
    model = UNet(args.width, classes=3)
    for name, p in model.named_parameters():
        if p.ndim > 1:
            p.data.copy_(torch.as_tensor(draw.normal(0, (2 / p[0].numel()) ** 0.5, size=p.shape)))
        elif name.endswith("bias"):
            p.data.zero_()
    model.to(args.device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    for step in range(1, args.steps + 1):
        pictures, masks = (t.to(args.device) for t in make_pictures(8, draw))
        logits = model(pictures)
        loss = F.cross_entropy(logits, masks, weight=torch.tensor([0.5, 1.0, 1.0], device=logits.device))
        loss = loss + dice_loss(logits, masks)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        scheduler.step()
        print(f"step {step}: loss {loss.item():.4f}, gradient {norm:.3f}")
    model.eval()
    pictures, masks = make_pictures(16, draw)
    with torch.no_grad():
        logits = model(pictures.to(args.device)).cpu()
    print("IoU of nothing, disc, bar: " + ", ".join(f"{iou:.3f}" for iou in mean_iou(logits, masks)))


if __name__ == "__main__":
    main()
