"""Speech recognition in miniature: words of tones, stft, mel filters, SpecAugment, a GRU trained with CTC."""

# test: --steps 6
# agree: 2e-3

from __future__ import annotations

import argparse
from functools import lru_cache

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

RATE, FFT, HOP, MELS = 4000, 128, 64, 20
TONES = [300, 520, 740, 1010, 1400]


def speak(letters: np.ndarray, draw: np.random.Generator) -> torch.Tensor:
    """Return samples, float32[time]: a tone with an overtone for each letter, pauses between, noise over all."""
    pieces = []
    for letter in letters:
        t = np.arange(draw.integers(500, 700)) / RATE
        tone = np.sin(2 * np.pi * TONES[letter] * t) + 0.3 * np.sin(4 * np.pi * TONES[letter] * t)
        pieces += [tone * np.hanning(len(t)), np.zeros(draw.integers(100, 200))]
    wave = np.concatenate(pieces)
    return torch.from_numpy(wave + 0.05 * draw.standard_normal(len(wave))).float()


@lru_cache
def mel_filters() -> torch.Tensor:
    """Return triangles that are equally wide on the mel scale, [MELS, FFT // 2 + 1]."""
    to_mel, to_hertz = lambda f: 2595.0 * np.log10(1.0 + f / 700.0), lambda m: 700.0 * (10.0 ** (m / 2595.0) - 1.0)
    edges = torch.from_numpy(to_hertz(np.linspace(to_mel(0.0), to_mel(RATE / 2), MELS + 2))).float()
    frequencies = torch.linspace(0, RATE // 2, FFT // 2 + 1)
    slopes = edges.unsqueeze(1) - frequencies.unsqueeze(0)
    down, up = -slopes[:-2] / (edges[1:-1] - edges[:-2])[:, None], slopes[2:] / (edges[2:] - edges[1:-1])[:, None]
    return torch.max(torch.zeros(1), torch.min(down, up))


def features(wave: torch.Tensor) -> torch.Tensor:
    """Return log mel energies with mean 0, [frames, MELS]."""
    emphasized = torch.cat([wave[:1], wave[1:] - 0.9 * wave[:-1]])
    spectrum = torch.stft(emphasized, FFT, HOP, window=torch.hann_window(FFT), center=True, return_complex=True)
    mel = torch.matmul(mel_filters(), spectrum.abs().square()).clamp(min=1e-5).log()
    return ((mel - mel.mean()) / mel.std(unbiased=False)).T


class Recognizer(nn.Module):
    """A strided convolution, a bidirectional GRU, log probabilities of letters and the blank."""

    def __init__(self, letters: int, width: int = 24) -> None:
        super().__init__()
        self.conv = nn.Conv1d(MELS, width, kernel_size=5, stride=2, padding=2)
        self.norm = nn.LayerNorm(width)
        self.gru = nn.GRU(width, width, bidirectional=True)
        self.head = nn.Linear(2 * width, letters + 1)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.hardtanh(self.norm(self.conv(x.transpose(1, 2)).permute(2, 0, 1)), 0, 20)
        lengths = torch.div(lengths - 1, 2, rounding_mode="floor") + 1
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0])
        return self.head(out).log_softmax(-1), lengths


def greedy_decode(log_probs: torch.Tensor, lengths: torch.Tensor) -> list[list[int]]:
    best = log_probs.argmax(-1).T.cpu()
    return [[int(i) for i in torch.unique_consecutive(row[:n]) if i != 0] for row, n in zip(best, lengths)]


def edit_distance(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (x != y)))
    return row[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = np.random.default_rng(args.seed)
    words = [draw.integers(0, len(TONES), draw.integers(2, 6)) for _ in range(60)]
    spoken = [features(speak(word, draw)) for word in words]
    model = Recognizer(len(TONES)).to(args.device)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            values = draw.standard_normal(parameter.shape) / np.sqrt(parameter[0].numel())
            parameter.data = torch.from_numpy(values).to(parameter)
        elif parameter is not model.norm.weight:
            nn.init.constant_(parameter, 0.0)
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=10)
    for step in range(args.steps):
        chosen = draw.choice(len(words), args.batch, replace=False)
        inputs = pad_sequence([spoken[i] for i in chosen], batch_first=True).to(args.device)
        band = int(draw.integers(0, MELS - 2))
        inputs[:, :, band : band + 2] = 0
        log_probs, lengths = model(inputs, torch.tensor([len(spoken[i]) for i in chosen]))
        targets = torch.cat([torch.from_numpy(words[i] + 1) for i in chosen]).to(args.device)
        loss = criterion(log_probs, targets, lengths, torch.tensor([len(words[i]) for i in chosen]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        plateau.step(loss.item())
        print(f"{step} loss {loss.item():.4f} lr {optimizer.param_groups[0]['lr']:.5f}")
    model.eval()
    with torch.no_grad():
        log_probs, lengths = model(pad_sequence(spoken, batch_first=True).to(args.device),
                                   torch.tensor([*map(len, spoken)]))  # fmt: skip
    errors = sum(edit_distance(a, (b + 1).tolist()) for a, b in zip(greedy_decode(log_probs, lengths), words))
    print(f"letter error rate {errors / sum(map(len, words)):.3f}")


if __name__ == "__main__":
    main()
