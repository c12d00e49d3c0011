"""Finds anomalies in time series: an autoencoder of convolutions and LSTMs learns what is usual."""

# test: --steps 5
# agree: spread

from __future__ import annotations

import argparse

import numpy as np
import torch
from scipy import signal
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset


def make_series(count: int, anomalous: float, draw: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Two channels of waves with noise, of different lengths; some have a spike, or a burst of high frequency."""
    series, labels = [], (draw.random(count) < anomalous).astype(np.int64)
    for label in labels:
        length = int(draw.integers(48, 65))
        t = np.arange(length) / 16
        phase, rate = draw.uniform(0, 2 * np.pi), draw.uniform(0.8, 1.2)
        x = np.stack([np.sin(2 * np.pi * rate * t + phase), signal.sawtooth(2 * np.pi * rate * t + phase, 0.5)])
        if label:
            start = int(draw.integers(8, length - 16))
            if draw.random() < 0.5:
                x[:, start : start + 3] += draw.choice([-2.0, 2.0])
            else:
                x[:, start : start + 12] += np.sin(np.arange(12) * 2.5)
        series.append((x + 0.05 * draw.standard_normal(x.shape)).astype(np.float32).T)
    return series, labels


class Series(Dataset):
    def __init__(self, series: list[np.ndarray], labels: np.ndarray) -> None:
        self.series, self.labels = [torch.from_numpy(s) for s in series], labels

    def __len__(self) -> int:
        return len(self.series)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.series[index], self.labels[index]


def collate(items: list) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    series, labels = zip(*items)
    lengths = torch.tensor([len(s) for s in series])
    return pad_sequence(series, batch_first=True), lengths, torch.tensor(np.array(labels))


class ConvLSTMAutoencoder(nn.Module):
    def __init__(self, channels: int = 2, hidden: int = 16, code: int = 8) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(channels, hidden, kernel_size=5, padding=2),
            nn.GroupNorm(4, hidden),
            nn.ELU(),
            nn.Conv1d(hidden, hidden, kernel_size=3, padding=2, dilation=2),
            nn.ELU(),
        )
        self.encoder = nn.LSTM(hidden, hidden, num_layers=1, batch_first=True, bidirectional=True)
        self.bottleneck = nn.Linear(2 * hidden, code)
        self.decoder = nn.LSTM(code, 2 * hidden, batch_first=True)
        self.out = nn.ConvTranspose1d(2 * hidden, channels, kernel_size=3, padding=1)
        for name, parameter in self.named_parameters():
            if "weight_hh" in name:
                nn.init.orthogonal_(parameter)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        features = self.conv(x.transpose(1, 2)).transpose(1, 2)
        packed = pack_padded_sequence(features, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, (h_n, _) = self.encoder(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.size(1))
        summary = torch.cat((h_n[-2], h_n[-1]), dim=-1).unsqueeze(1)
        code = torch.tanh(self.bottleneck(out + summary))
        self.decoder.flatten_parameters()
        decoded, _ = self.decoder(code)
        return self.out(decoded.permute(0, 2, 1)).permute(0, 2, 1)


def errors(reconstruction: torch.Tensor, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Mean squared error at each place, and 0 behind the end of a series."""
    mask = torch.arange(x.size(1), device=x.device)[None, :] < lengths.to(x.device)[:, None]
    return (reconstruction - x).pow(2).mean(dim=-1).masked_fill(~mask, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    draw = np.random.default_rng(args.seed)

    train = DataLoader(Series(*make_series(256, 0.0, draw)), batch_size=32, shuffle=True, collate_fn=collate)
    model = ConvLSTMAutoencoder().to(args.device)
    ema = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda avg, new, n: 0.95 * avg + 0.05 * new)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, amsgrad=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=50, gamma=0.5)
    step = 0
    while step < args.steps:
        for x, lengths, _ in train:
            x = x.to(args.device)
            noisy = x + 0.1 * torch.randn_like(x)
            loss = errors(model(noisy, lengths), x, lengths).sum() / lengths.sum().item()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)
            optimizer.step()
            ema.update_parameters(model)
            scheduler.step()
            print(f"step {step} loss {loss.item():.4f}")
            step += 1
            if step >= args.steps:
                break

    scores, truth = [], []
    ema.eval()
    with torch.no_grad():
        for x, lengths, labels in DataLoader(Series(*make_series(128, 0.3, draw)), batch_size=64, collate_fn=collate):
            x = x.to(args.device)
            error = errors(ema(x, lengths), x, lengths)
            scores.append(torch.nn.functional.avg_pool1d(error.unsqueeze(1), 4, stride=1).amax(dim=(1, 2)).cpu())
            truth.append(labels)
    scores, truth = torch.cat(scores), torch.cat(truth)
    threshold = torch.quantile(scores[truth == 0], 0.95)
    print(f"area under the curve {roc_auc_score(truth.numpy(), scores.numpy()):.3f}")
    print(f"detected {(scores[truth == 1] > threshold).float().mean().item():.2f} at 5% false alarms")


if __name__ == "__main__":
    main()
