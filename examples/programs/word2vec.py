"""Word vectors: skip-gram with negative sampling, and bags of a word and its letters, on scikit-learn's documents."""

# test: --steps 12
# agree: spread

from __future__ import annotations

import argparse
import re
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn import datasets
from torch.utils.data import DataLoader, IterableDataset


class Vocabulary:
    def __init__(self, text: str, min_count: int = 3, buckets: int = 200) -> None:
        tokens = re.findall(r"[a-z]+", text.lower())
        counts = Counter(tokens)
        self.words = [w for w, c in counts.most_common() if c >= min_count]
        self.index = {w: i for i, w in enumerate(self.words)}
        self.corpus = np.array([self.index[t] for t in tokens if t in self.index])
        self.frequency = torch.tensor([counts[w] for w in self.words], dtype=torch.float)
        self.buckets = buckets
        self.bags = [
            [i] + [len(self.words) + self._bucket(g) for g in self._grams(w)] for i, w in enumerate(self.words)
        ]

    @staticmethod
    def _grams(word: str) -> list[str]:
        marked = f"<{word}>"
        return [marked[i : i + 3] for i in range(len(marked) - 2)]

    def _bucket(self, gram: str) -> int:
        return sum(ord(c) * 31**i for i, c in enumerate(gram)) % self.buckets


class SkipGrams(IterableDataset):
    """Pairs of a word and one near it; frequent words are left out at random."""

    def __init__(self, vocabulary: Vocabulary, window: int, seed: int) -> None:
        super().__init__()
        self.vocabulary, self.window = vocabulary, window
        share = (vocabulary.frequency / vocabulary.frequency.sum()).numpy()
        self.keep = np.minimum(1.0, np.sqrt(1e-2 / share))
        self.draw = np.random.default_rng(seed)

    def __iter__(self):
        while True:
            corpus = self.vocabulary.corpus
            corpus = corpus[self.draw.random(len(corpus)) < self.keep[corpus]]
            for position in self.draw.permutation(len(corpus)):
                reach = int(self.draw.integers(1, self.window + 1))
                for other in range(max(0, position - reach), min(len(corpus), position + reach + 1)):
                    if other != position:
                        yield int(corpus[position]), int(corpus[other])


class SkipGramNegativeSampling(nn.Module):
    def __init__(self, vocabulary: Vocabulary, dim: int) -> None:
        super().__init__()
        words = len(vocabulary.words)
        self.input = nn.EmbeddingBag(words + vocabulary.buckets, dim, mode="mean")
        self.output = nn.Embedding(words, dim)
        nn.init.uniform_(self.input.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.output.weight)
        self.register_buffer("noise", vocabulary.frequency.pow(0.75))

    def forward(self, bags: torch.Tensor, offsets: torch.Tensor, context: torch.Tensor, negatives: int) -> torch.Tensor:
        center = self.input(bags, offsets)
        drawn = torch.multinomial(self.noise, context.numel() * negatives, replacement=True).view(-1, negatives)
        positive = F.logsigmoid(torch.sum(center * self.output(context), dim=1))
        negative = F.logsigmoid(torch.bmm(self.output(drawn).neg(), center.unsqueeze(2)).squeeze(2)).sum(1)
        return -(positive + negative).mean()

    def most_similar(self, bags: list[list[int]], query: int, k: int = 3) -> tuple[list[float], list[int]]:
        lengths = torch.tensor([len(b) for b in bags])
        offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
        flat = torch.tensor([i for b in bags for i in b])
        device = self.input.weight.device
        vectors = F.normalize(self.input(flat.to(device), offsets.to(device)))
        values, indices = torch.mv(vectors, vectors[query]).topk(k + 1)
        return values[1:].tolist(), indices[1:].tolist()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print the words that are nearest")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    loaders = (datasets.load_iris, datasets.load_wine, datasets.load_breast_cancer, datasets.load_diabetes)
    vocabulary = Vocabulary(" ".join(load().DESCR for load in loaders))

    def collate(pairs):
        bags = [vocabulary.bags[center] for center, _ in pairs]
        offsets = torch.tensor([0] + [len(b) for b in bags[:-1]]).cumsum(dim=0)
        return torch.tensor([i for bag in bags for i in bag]), offsets, torch.tensor([context for _, context in pairs])

    loader = DataLoader(SkipGrams(vocabulary, 3, args.seed), batch_size=args.batch_size, collate_fn=collate)
    model = SkipGramNegativeSampling(vocabulary, dim=32).to(args.device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for step, (bags, offsets, context) in enumerate(loader):
        if step == args.steps:
            break
        loss = model(bags.to(args.device), offsets.to(args.device), context.to(args.device), args.negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        values, near = model.most_similar(vocabulary.bags, vocabulary.index["data"])
    print("similarity to what is nearest", " ".join(f"{value:.3f}" for value in values))
    if args.show:
        print("near data:", " ".join(vocabulary.words[i] for i in near))


if __name__ == "__main__":
    main()
