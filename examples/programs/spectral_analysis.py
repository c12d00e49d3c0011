"""Filters and spectra with torch.fft: Welch's method, a notch, the Hilbert transform, a learned spectral operator."""

# test: --steps 8
# agree: 5e-3

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from torch import nn

RATE = 256


def welch(x: torch.Tensor, size: int = 128, overlap: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Return frequencies in Hz and the power spectral density, averaged over windows that overlap."""
    window = torch.hann_window(size, dtype=x.dtype, device=x.device)
    pieces = x.unfold(-1, size, int(size * (1 - overlap)))
    pieces = (pieces - pieces.mean(-1, keepdim=True)) * window
    power = torch.fft.rfft(pieces).abs().pow(2) / (RATE * window.square().sum())
    power[..., 1:-1] *= 2
    return torch.fft.rfftfreq(size, d=1 / RATE, device=x.device), power.mean(-2)


def notch(x: torch.Tensor, frequency: float, width: float) -> torch.Tensor:
    spectrum = torch.fft.rfft(x)
    distance = (torch.fft.rfftfreq(x.shape[-1], 1 / RATE, device=x.device) - frequency).abs()
    return torch.fft.irfft(torch.where(distance < width, 0, spectrum), n=x.shape[-1])


def envelope(x: torch.Tensor) -> torch.Tensor:
    """Return the magnitude of the analytic signal."""
    n = x.shape[-1]
    gain = torch.zeros(n, dtype=x.dtype, device=x.device)
    gain[0] = gain[n // 2] = 1
    gain[1 : n // 2] = 2
    return torch.abs(torch.fft.ifft(torch.fft.fft(x) * gain))


def fft_convolve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    n = a.size(-1) + b.size(-1) - 1
    size = 1 << (n - 1).bit_length()
    return torch.fft.irfft(torch.fft.rfft(a, size) * torch.fft.rfft(b, size), size)[..., :n]


def low_pass_image(image: torch.Tensor, radius: float) -> torch.Tensor:
    spectrum = torch.fft.fftshift(torch.fft.fft2(image, norm="ortho"), dim=(-2, -1))
    y = torch.arange(image.shape[-2], device=image.device).view(-1, 1) - image.shape[-2] // 2
    x = torch.arange(image.shape[-1], device=image.device).view(1, -1) - image.shape[-1] // 2
    spectrum = spectrum * (torch.hypot(x.float(), y.float()) <= radius)
    return torch.fft.ifft2(torch.fft.ifftshift(spectrum, dim=(-2, -1)), norm="ortho").real


class SpectralConv(nn.Module):
    """Multiplies the lowest modes by learned complex matrices, as a Fourier neural operator does."""

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.zeros(channels, channels, modes, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x, dim=-1)
        out = torch.zeros_like(spectrum)
        out[..., : self.modes] = torch.einsum("bim,iom->bom", spectrum[..., : self.modes], self.weight)
        return torch.fft.irfft(out, n=x.size(-1), dim=-1)


class Operator(nn.Module):
    """Lifts a function to channels, convolves it twice, and projects it again."""

    def __init__(self, channels: int = 8, modes: int = 8) -> None:
        super().__init__()
        self.lift, self.project = nn.Conv1d(1, channels, 1), nn.Conv1d(channels, 1, 1)
        self.convs = nn.ModuleList(SpectralConv(channels, modes) for _ in range(2))
        self.shortcuts = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lift(x)
        for conv, shortcut in zip(self.convs, self.shortcuts):
            x = nn.functional.gelu(conv(x) + shortcut(x))
        return self.project(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw, device = np.random.default_rng(args.seed), torch.device(args.device)
    t = torch.arange(4 * RATE, device=device) / RATE
    noise = torch.tensor(draw.standard_normal(len(t)), dtype=torch.float32, device=device)
    signal = (1 + 0.5 * torch.cos(2 * math.pi * t)) * torch.sin(2 * math.pi * 20 * t)
    recorded = signal + torch.sin(2 * math.pi * 50 * t) + 0.3 * noise
    frequencies, power = welch(recorded)
    peaks = frequencies[power.topk(2).indices].sort().values
    print(f"peaks at {peaks.tolist()} Hz, total power {torch.trapezoid(power, frequencies):.4f}")
    clean = notch(recorded, 50.0, 2.0)
    kernel = torch.kaiser_window(31, periodic=False, beta=5.0, device=device)
    smooth = fft_convolve(clean, kernel / kernel.sum())[15:-15]
    print(f"error {(recorded - signal).std():.4f}, after the notch {(clean - signal).std():.4f}, {smooth.var():.5f}")
    print(f"envelope {envelope(signal).min():.4f} to {envelope(signal).amax():.4f}")
    image = torch.as_tensor(draw.random((2, 24, 30)), device=device)
    print(f"image {low_pass_image(image, 6.0).var(dim=(-2, -1)).tolist()} {torch.fft.rfftn(image).angle().std():.4f}")

    model = Operator().to(device)
    with torch.no_grad():
        for p in model.parameters():
            values = draw.standard_normal((*p.shape, 2)) / 4
            p.copy_(torch.view_as_complex(torch.from_numpy(values)) if p.is_complex() else torch.tensor(values[..., 0]))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    wave_numbers = 2j * math.pi * torch.fft.rfftfreq(64, 1 / 64, device=device)
    for step in range(args.steps):
        coefficients = draw.standard_normal((16, 1, 5, 2))
        functions = torch.fft.irfft(torch.view_as_complex(torch.from_numpy(coefficients)).to(device), n=64) * 8
        derivative = torch.fft.irfft(torch.fft.rfft(functions) * wave_numbers) / 10
        loss = nn.functional.mse_loss(model(functions.float()), derivative.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step} loss {loss.item():.5f} weight {model.convs[0].weight.abs().mean().item():.5f}")


if __name__ == "__main__":
    main()
