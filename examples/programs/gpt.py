"""A small GPT on descriptions of data sets; it writes text with a key-value cache, top-k and top-p."""

# test: --steps 5
# agree: spread

from __future__ import annotations

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn import datasets


class CausalSelfAttention(nn.Module):
    """Attention of several heads to what came before; with a cache, to what came in earlier calls too."""

    def __init__(self, width: int, heads: int, block_size: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        mask = torch.tril(torch.ones(block_size, block_size, dtype=torch.bool))
        self.register_buffer("mask", mask.view(1, 1, block_size, block_size), persistent=False)

    def forward(self, x: torch.Tensor, cache: tuple | None = None) -> tuple[torch.Tensor, tuple]:
        batch, length, width = x.size()
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        total = k.size(2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(~self.mask[:, :, total - length : total, :total], float("-inf"))
        y = self.attn_dropout(F.softmax(scores, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(batch, length, width)
        return self.resid_dropout(self.proj(y)), (k.detach(), v.detach())


class Block(nn.Module):
    def __init__(self, width: int, heads: int, block_size: int, dropout: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, block_size, dropout)
        self.mlp = nn.ModuleDict(
            {"fc": nn.Linear(width, 4 * width), "act": nn.GELU(approximate="tanh"), "proj": nn.Linear(4 * width, width)}
        )

    def forward(self, x: torch.Tensor, cache: tuple | None = None) -> tuple[torch.Tensor, tuple]:
        attended, cache = self.attn(self.ln_1(x), cache)
        x = x + attended
        return x + self.mlp.proj(self.mlp.act(self.mlp.fc(self.ln_2(x)))), cache


class GPT(nn.Module):
    def __init__(self, vocab: int, block_size=64, width=64, heads=4, layers=2, dropout=0.0) -> None:
        super().__init__()
        self.block_size = block_size
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList([Block(width, heads, block_size, dropout) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.wte.weight = self.head.weight  # one matrix reads and writes characters
        self.apply(self._init_weights)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            torch.nn.init.zeros_(module.bias)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None, caches: list | None = None):
        start = caches[0][0].size(2) if caches else 0
        positions = torch.arange(start, start + idx.size(1), dtype=torch.long, device=idx.device)
        x, new_caches = self.wte(idx) + self.wpe(positions), []
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks)):
            x, cache = block(x, cache)
            new_caches.append(cache)
        logits = self.head(self.ln_f(x))
        if targets is None:
            return logits, new_caches
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizer(self, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        parameters = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))

    @torch.no_grad()
    def generate(self, idx: torch.Tensor, count: int, temperature=1.0, top_k=None, top_p=None) -> torch.Tensor:
        self.eval()
        caches, step = None, idx
        for _ in range(count):
            logits, caches = self(step, caches=caches)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                kth = torch.topk(logits, min(top_k, logits.size(-1))).values[:, [-1]]
                logits[logits < kth] = -float("Inf")
            if top_p is not None:
                ordered, order = torch.sort(logits, descending=True, dim=-1)
                remove = ordered.softmax(dim=-1).cumsum(dim=-1) > top_p
                remove[..., 1:] = remove[..., :-1].clone()
                remove[..., 0] = False
                logits = logits.masked_fill(remove.scatter(1, order, remove), -float("inf"))
            step = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            idx = torch.cat((idx, step), dim=1)
        self.train()
        return idx


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--show", action="store_true", help="print the text that the model writes")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    text = "".join(load().DESCR for load in (datasets.load_iris, datasets.load_wine, datasets.load_breast_cancer))
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in text], dtype=torch.long)

    model = GPT(len(chars)).to(args.device)
    optimizer = model.configure_optimizer(lr=3e-3, weight_decay=0.1)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 10) * 0.5 * (1.0 + math.cos(math.pi * step / args.steps))
        ix = torch.randint(len(data) - model.block_size, (args.batch_size,))
        x = torch.stack([data[i : i + model.block_size] for i in ix]).to(args.device)
        y = torch.stack([data[i + 1 : i + 1 + model.block_size] for i in ix]).to(args.device)
        loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")

    prompt = torch.tensor([[stoi[c] for c in "The "]], device=args.device)
    whole, _ = model(prompt)
    first, caches = model(prompt[:, :2])
    second, _ = model(prompt[:, 2:], caches=caches)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-4, atol=1e-4)
    written = "".join(chars[i] for i in model.generate(prompt, 40, 0.8, top_k=20, top_p=0.95)[0].tolist())
    print(f"{len(set(written))} different characters in {len(written)}, {sum(map(str.isalpha, written))} letters")
    if args.show:
        print(written)


if __name__ == "__main__":
    main()
