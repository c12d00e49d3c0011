"""A DCGAN on scikit-learn's digits: two networks, two optimizers, noise from the library's own generator."""

# test: --steps 12 --width 8
# agree: spread

from __future__ import annotations

import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

NZ = 16


def weights_init(m: nn.Module) -> None:
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    """From noise, [N, NZ, 1, 1], to pictures of 8 x 8 pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NZ, width * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.Conv2d(width, 1, 3, 1, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.main(input)


class Discriminator(nn.Module):
    """From pictures to log odds that they are real."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, width * 2, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Dropout2d(0.1),
            nn.Conv2d(width * 2, 1, 4, 1, 0, bias=False),
        )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.main(input).view(-1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=999)
    opt = parser.parse_args()
    random.seed(opt.seed)
    np.random.seed(opt.seed % 2**32)
    torch.manual_seed(opt.seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(opt.seed)
    device = torch.device(opt.device)

    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    dataloader = DataLoader(TensorDataset(images), batch_size=64, shuffle=True, drop_last=True)
    netG, netD = Generator(opt.width).to(device), Discriminator(opt.width).to(device)
    netG.apply(weights_init)
    netD.apply(weights_init)
    criterion = nn.BCEWithLogitsLoss()
    fixed_noise = torch.randn(16, NZ, 1, 1, device=device)
    optimizerD = optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
    iters = 0
    while iters < opt.steps:
        for (real,) in dataloader:
            real = real.to(device)
            b_size = real.size(0)
            # (1) the discriminator learns to tell real from made
            netD.zero_grad()
            label = torch.full((b_size,), 0.9, dtype=torch.float, device=device)
            output = netD(real)
            errD_real = criterion(output, label)
            errD_real.backward()
            D_x = output.sigmoid().mean().item()
            noise = torch.randn(b_size, NZ, 1, 1, device=device)
            fake = netG(noise)
            label.fill_(0)
            errD_fake = criterion(netD(fake.detach()), label)
            errD_fake.backward()
            optimizerD.step()
            # (2) the generator learns to be taken for real
            netG.zero_grad()
            label.fill_(1)
            output = netD(fake)
            errG = criterion(output, label)
            errG.backward()
            optimizerG.step()
            iters += 1
            print(
                f"Loss_D: {errD_real.item() + errD_fake.item():.4f} Loss_G: {errG.item():.4f} "
                f"D(x): {D_x:.4f} D(G(z)): {output.sigmoid().mean().item():.4f}"
            )
            if iters == opt.steps:
                break
    with torch.no_grad():
        netG.eval()
        made = netG(fixed_noise).detach().cpu()
    print(f"made {tuple(made.shape)}, mean {made.mean():.3f}, deviation {made.std():.3f}")


if __name__ == "__main__":
    main()
