"""A Transformer that sorts letters: nn.Transformer, masks, label smoothing, warmup, greedy and beam decoding."""

# test: --steps 8
# agree: 5e-3

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
LETTERS = 10


@dataclass
class Config:
    """Sizes of the model."""

    width: int = 32
    heads: int = 4
    layers: int = 2
    vocabulary: int = field(default=FIRST + LETTERS)


class PositionalEncoding(nn.Module):
    """Adds sines and cosines of the position."""

    pe: torch.Tensor

    def __init__(self, width: int, longest: int = 64) -> None:
        super().__init__()
        position = torch.arange(longest).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        pe = torch.zeros(1, longest, width)
        pe[0, :, 0::2] = torch.sin(position * frequency)
        pe[0, :, 1::2] = torch.cos(position * frequency)
        self.register_buffer("pe", pe, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.pe[:, : x.size(1)]


class Seq2Seq(nn.Module):
    """Embeddings, nn.Transformer, and log odds of the next letter."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.scale = math.sqrt(config.width)
        self.embedding = nn.Embedding(config.vocabulary, config.width, padding_idx=PAD)
        self.position = PositionalEncoding(config.width)
        self.transformer = nn.Transformer(
            config.width, config.heads, config.layers, config.layers, dim_feedforward=4 * config.width,
            dropout=0.0, activation="gelu", batch_first=True, norm_first=False,
        )  # fmt: skip
        self.generator = nn.Linear(config.width, config.vocabulary)

    def embed(self, letters: torch.Tensor) -> torch.Tensor:
        return self.position(self.embedding(letters) * self.scale)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=target.device)
        source_padding, target_padding = source == PAD, target == PAD
        out = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=causal.isinf(), src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding, memory_key_padding_mask=source_padding, tgt_is_causal=False,
        )  # fmt: skip
        return self.generator(out)

    def encode(self, source: torch.Tensor) -> torch.Tensor:
        return self.transformer.encoder(self.embed(source), src_key_padding_mask=(source == PAD))

    def next_log_probs(self, target: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        size = target.size(1)
        mask = torch.triu(torch.ones(size, size, dtype=torch.bool, device=target.device), diagonal=1)
        out = self.transformer.decoder(self.embed(target), memory, tgt_mask=mask)
        return torch.log_softmax(self.generator(out[:, -1]), dim=-1)


def make_batch(count: int, draw: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of letters, and the same letters in order between BOS and EOS; both padded."""
    source, target = torch.full((count, 8), PAD), torch.full((count, 10), PAD)
    for row in range(count):
        letters = torch.from_numpy(draw.integers(FIRST, FIRST + LETTERS, draw.integers(3, 9)))
        n = letters.numel()
        source[row, :n] = letters
        target[row, : n + 2] = torch.cat([torch.tensor([BOS]), letters.sort().values, torch.tensor([EOS])])
    return source, target


@torch.no_grad()
def greedy(model: Seq2Seq, source: torch.Tensor, limit: int = 10) -> list[int]:
    memory, letters = model.encode(source), [BOS]
    while letters[-1] != EOS and len(letters) < limit:
        log_probs = model.next_log_probs(torch.tensor([letters], device=source.device), memory)
        letters.append(int(log_probs.argmax(dim=-1)))
    return letters


@torch.no_grad()
def beam(model: Seq2Seq, source: torch.Tensor, width: int = 3, limit: int = 10) -> tuple[list[int], float]:
    """Return the best of ``width`` hypotheses, and its log probability per letter."""
    memory, beams = model.encode(source), [([BOS], 0.0)]
    for _ in range(limit - 1):
        candidates = [b for b in beams if b[0][-1] == EOS]
        live = [b for b in beams if b[0][-1] != EOS]
        if not live:
            break
        target = torch.tensor([letters for letters, _ in live], device=source.device)
        log_probs = model.next_log_probs(target, memory.expand(len(live), -1, -1))
        best, index = log_probs.topk(width, dim=-1)
        for (letters, score), values, numbers in zip(live, best.tolist(), index.tolist()):
            candidates += [([*letters, number], score + value) for value, number in zip(values, numbers)]
        beams = sorted(candidates, key=lambda b: b[1] / len(b[0]), reverse=True)[:width]
    letters, score = beams[0]
    return letters, score / len(letters)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw, config = np.random.default_rng(args.seed), Config()
    model = Seq2Seq(config)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            bound = math.sqrt(6 / sum(p.shape))
            p.data = torch.tensor(draw.uniform(-bound, bound, p.shape), dtype=p.dtype)
        elif name.endswith("bias"):
            nn.init.zeros_(p)
    model = model.to(args.device)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    warmup = 100
    noam = lambda step: config.width**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=noam)
    for step in range(args.steps):
        model.train()
        source, target = (t.to(args.device) for t in make_batch(32, draw))
        logits = model(source, target[:, :-1])
        loss = criterion(logits.reshape(-1, logits.shape[-1]), target[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        print(f"step {step} lr {optimizer.param_groups[0]['lr']:.2e} loss {loss:.4f}")
    model.eval()
    source, _ = make_batch(1, draw)
    source = source[:, : int((source != PAD).sum())].to(args.device)
    print("greedy", greedy(model, source))
    letters, score = beam(model, source)
    print("beam", letters, f"{score:.4f}")


if __name__ == "__main__":
    main()
