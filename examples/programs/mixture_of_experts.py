"""A sparsely gated mixture of experts: every sample goes to the two experts that a gate prefers."""

# test: --steps 12
# agree: spread

from __future__ import annotations

import argparse
from typing import NamedTuple

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


class Routing(NamedTuple):
    weights: torch.Tensor
    experts: torch.Tensor
    balance: torch.Tensor
    z: torch.Tensor


class NoisyTopKGate(nn.Module):
    def __init__(self, dim: int, experts: int, k: int) -> None:
        super().__init__()
        self.k, self.experts = k, experts
        self.gate = nn.Linear(dim, experts, bias=False)
        self.noise = nn.Linear(dim, experts, bias=False)

    def forward(self, x: torch.Tensor) -> Routing:
        logits = self.gate(x)
        if self.training:
            logits = logits + torch.randn_like(logits) * F.softplus(self.noise(x))
        probabilities = logits.softmax(dim=-1, dtype=torch.float32)
        weights, experts = torch.topk(probabilities, self.k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        share = torch.bincount(experts.flatten(), minlength=self.experts) / experts.numel()
        balance = self.experts * torch.sum(share * probabilities.mean(dim=0))
        return Routing(weights.to(x.dtype), experts, balance, torch.logsumexp(logits, dim=-1).square().mean())


class MoE(nn.Module):
    """Tokens are sorted by expert, so that each expert computes one dense product."""

    def __init__(self, dim: int, hidden: int, experts: int, k: int) -> None:
        super().__init__()
        self.gate = NoisyTopKGate(dim, experts, k)
        self.w1 = nn.Parameter(torch.empty(experts, dim, hidden))
        self.w2 = nn.Parameter(torch.empty(experts, hidden, dim))
        self.w3 = nn.Parameter(torch.empty(experts, dim, hidden))
        for weight in (self.w1, self.w2, self.w3):
            for expert in weight:
                nn.init.xavier_uniform_(expert)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Routing]:
        routing = self.gate(x)
        flat = routing.experts.view(-1)
        order = flat.argsort(stable=True)
        counts = flat.bincount(minlength=self.w1.size(0)).tolist()
        tokens = x.repeat_interleave(self.gate.k, dim=0)[order]
        outputs = []
        for expert, chunk in enumerate(tokens.split(counts)):
            if chunk.numel():
                gated = F.silu(chunk @ self.w1[expert]) * (chunk @ self.w3[expert])
                outputs.append(gated @ self.w2[expert])
        scattered = torch.empty_like(tokens)
        scattered[order] = torch.cat(outputs)
        mixed = torch.einsum("nkd,nk->nd", scattered.view(*routing.weights.shape, -1), routing.weights)
        return mixed, routing


def dense_reference(moe: MoE, x: torch.Tensor) -> torch.Tensor:
    """What the layer computes, with every expert applied to every sample."""
    routing = moe.gate(x)
    hidden = F.silu(torch.einsum("nd,edh->neh", x, moe.w1)) * torch.einsum("nd,edh->neh", x, moe.w3)
    everything = torch.einsum("neh,ehd->ned", hidden, moe.w2)
    index = routing.experts.unsqueeze(-1).expand(-1, -1, x.size(-1))
    return (everything.gather(1, index) * routing.weights.unsqueeze(-1)).sum(dim=1)


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


class Classifier(nn.Module):
    def __init__(self, dim: int = 32, experts: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(64, dim)
        self.norms = nn.ModuleList(RMSNorm(dim) for _ in range(layers))
        self.layers = nn.ModuleList(MoE(dim, 2 * dim, experts, 2) for _ in range(layers))
        self.head = nn.Linear(dim, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, auxiliary = self.embed(x), x.new_zeros(())
        for norm, layer in zip(self.norms, self.layers):
            mixed, routing = layer(norm(x))
            x = x + mixed
            auxiliary = auxiliary + 0.01 * routing.balance + 1e-3 * routing.z
        return self.head(x), auxiliary


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")

    x, y = load_digits(return_X_y=True)
    dataset = TensorDataset(torch.as_tensor(x / 16, dtype=torch.float32), torch.as_tensor(y))
    weights = 1.0 / torch.bincount(dataset.tensors[1]).float()
    sampler = WeightedRandomSampler(weights[dataset.tensors[1]], num_samples=64 * args.steps, replacement=True)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)

    model = Classifier().to(args.device)
    gates, others = [], []
    for name, parameter in model.named_parameters():
        (gates if "gate" in name else others).append(parameter)
    optimizer = torch.optim.AdamW([{"params": others}, {"params": gates, "lr": 1e-3}], lr=5e-3)
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(args.device), labels.to(args.device)
        with torch.autocast(device_type=torch.device(args.device).type, dtype=torch.bfloat16, enabled=False):
            logits, auxiliary = model(images)
        loss = F.cross_entropy(logits, labels) + auxiliary
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        hidden = model.norms[0](model.embed(dataset.tensors[0][:50].to(args.device)))
        mixed, routing = model.layers[0](hidden)
        assert torch.allclose(mixed, dense_reference(model.layers[0], hidden), atol=1e-4)
        accuracy = (model(dataset.tensors[0].to(args.device))[0].argmax(1).cpu() == dataset.tensors[1]).float().mean()
    per_expert = torch.bincount(routing.experts.flatten(), minlength=4)
    print(f"accuracy {accuracy.item():.3f}, {per_expert.max().item()} samples for the expert that has most")


if __name__ == "__main__":
    main()
