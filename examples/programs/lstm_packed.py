"""An LSTM language model on sentences of different lengths: collate_fn, padding, packed sequences, sampling."""

# test: --steps 10
# agree: 5e-3

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, BEGIN, END = 0, 1, 2
SUBJECTS = ["the cat", "a dog", "my old aunt", "the quick brown fox", "nobody"]
VERBS = ["sees", "likes", "runs after", "never forgets", "paints"]
OBJECTS = ["it", "the moon", "a red ball", "the smell of rain in the garden", "him"]


class Sentences(Dataset):
    """Random sentences as tensors of word numbers."""

    def __init__(self, count: int, draw: np.random.Generator) -> None:
        phrases = [" ".join(draw.choice(part) for part in (SUBJECTS, VERBS, OBJECTS)) for _ in range(count)]
        words = sorted({word for phrase in phrases for word in phrase.split()})
        self.words = ["<pad>", "<s>", "</s>", *words]
        self.number = {word: i for i, word in enumerate(self.words)}
        self.sentences = [
            torch.tensor([BEGIN, *(self.number[w] for w in phrase.split()), END], dtype=torch.long)
            for phrase in phrases
        ]

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.sentences[index]

    def __len__(self) -> int:
        return len(self.sentences)


def collate(batch: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return words, the words that follow, and how many there are."""
    lengths = torch.tensor([len(sentence) - 1 for sentence in batch])
    words = pad_sequence([s[:-1] for s in batch], batch_first=True, padding_value=PAD)
    following = pad_sequence([s[1:] for s in batch], batch_first=True, padding_value=PAD)
    return words, following, lengths


class LanguageModel(nn.Module):
    """Two LSTM layers between an embedding and a head that shares its weight."""

    def __init__(self, words: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, words)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed: PackedSequence = pack_padded_sequence(
            self.embedding(words), lengths, batch_first=True, enforce_sorted=False
        )
        out, (hidden, _) = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=words.size(1))
        return self.head(out), hidden[-1]

    @torch.no_grad()
    def complete(self, start: list[int], limit: int = 12) -> list[int]:
        """Return the most likely rest of a sentence, word by word."""
        device = next(self.parameters()).device
        numbers, state = list(start), None
        step = torch.tensor([numbers], device=device)
        while len(numbers) < limit and numbers[-1] != END:
            out, state = self.lstm(self.embedding(step), state)
            numbers.append(self.head(out[:, -1]).argmax(-1).item())
            step = torch.tensor([[numbers[-1]]], device=device)
        return numbers


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", type=str, default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = np.random.default_rng(args.seed)
    data = Sentences(400, draw)
    model = LanguageModel(len(data.words)).to(args.device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(draw.uniform(-0.25, 0.25, tuple(parameter.shape))))
        model.embedding.weight[PAD].fill_(0)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), amsgrad=True)
    loader = DataLoader(data, batch_size=20, collate_fn=collate)
    step = 0
    while step < args.steps:
        for words, following, lengths in loader:
            words, following = words.to(args.device), following.to(args.device)
            logits, last = model(words, lengths)
            loss = criterion(logits.transpose(1, 2), following)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            step += 1
            print(f"{step:4d} | perplexity {math.exp(loss.item()):8.4f} | state {last.norm(dim=1).mean():.4f}")
            if step >= args.steps:
                break
    model.eval()
    completed = model.complete([BEGIN, data.number["the"]])
    print("completed:", len(completed), "words")
    assert model.embedding.weight.grad is not None and not model.embedding.weight.grad[PAD].isnan().any()


if __name__ == "__main__":
    main()
