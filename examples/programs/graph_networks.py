"""A GCN and a GAT that find the communities of a generated graph: index_add, scatter_reduce, bincount."""

# test: --steps 12
# agree: 5e-3

from __future__ import annotations

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def make_graph(draw: np.random.Generator, sizes: tuple[int, ...] = (14, 12, 8)) -> tuple[Tensor, Tensor, Tensor]:
    """Return features, float32[nodes, 8], edges in both directions, int64[2, edges], and the nodes' communities."""
    community = np.repeat(np.arange(len(sizes)), sizes)
    near = np.where(community[:, None] == community, 0.35, 0.04)
    upper = np.triu(draw.random(near.shape) < near, 1)
    edges = np.stack(np.nonzero(upper | upper.T))
    features = draw.standard_normal((len(community), 8)) + 0.7 * np.eye(len(sizes), 8)[community]
    return torch.from_numpy(features).float(), torch.from_numpy(edges), torch.from_numpy(community)


def add_self_loops(edges: Tensor, nodes: int) -> Tensor:
    loops = torch.arange(nodes, dtype=edges.dtype, device=edges.device)
    return torch.cat((edges, loops.repeat(2, 1)), dim=1)


def scatter_softmax(scores: Tensor, index: Tensor, nodes: int) -> Tensor:
    """Softmax of edges' scores, [edges, heads], among those that end in the same node."""
    where = index.unsqueeze(-1).expand_as(scores)
    highest = scores.new_full((nodes, scores.size(1)), float("-inf")).scatter_reduce(0, where, scores, "amax")
    weights = torch.exp(scores - highest[index])
    return weights / torch.zeros_like(highest).scatter_add_(0, where, weights)[index].clamp_min(1e-16)


class GCNConv(nn.Module):
    """D^-1/2 A D^-1/2 X W."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = torch.bincount(target, minlength=x.size(0)).to(x.dtype)
        scale = degree.pow(-0.5).masked_fill(degree == 0, 0.0)
        messages = self.linear(x)[source] * (scale[source] * scale[target]).view(-1, 1)
        return torch.zeros(x.size(0), messages.size(1), device=x.device).index_add(0, target, messages) + self.bias


class GATConv(nn.Module):
    """Attention over a node's neighbours, with several heads side by side."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.linear = nn.Linear(inputs, heads * outputs, bias=False)
        self.att_source = nn.Parameter(torch.empty(1, heads, outputs))
        self.att_target = nn.Parameter(torch.empty(1, heads, outputs))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.att_source, self.att_target):
            nn.init.xavier_uniform_(weight, gain=nn.init.calculate_gain("leaky_relu", 0.2))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges.unbind(0)
        h = self.linear(x).view(-1, self.heads, self.outputs)
        scores = (h * self.att_source).sum(-1).index_select(0, source) + (h * self.att_target).sum(-1)[target]
        alpha = scatter_softmax(F.leaky_relu(scores, 0.2), target, x.shape[0])
        messages = h.index_select(0, source).mul(alpha.unsqueeze(-1))
        out = torch.zeros_like(h)
        out.index_add_(0, target, messages)
        return out.flatten(start_dim=1)

    def extra_repr(self) -> str:
        return f"{self.linear.in_features}, {self.outputs}, heads={self.heads}"


class Network(nn.Module):
    """Two layers of either kind."""

    def __init__(self, kind: str, classes: int) -> None:
        super().__init__()
        if kind == "gcn":
            self.convs = nn.ModuleList([GCNConv(8, 16), GCNConv(16, classes)])
        else:
            self.convs = nn.ModuleList([GATConv(8, 4, heads=4), GATConv(16, classes, heads=1)])

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.convs[1](F.elu(self.convs[0](x, edges)), edges)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = np.random.default_rng(args.seed)
    x, edges, labels = (t.to(args.device) for t in make_graph(draw))
    print(f"{x.size(0)} nodes, {edges.size(1) // 2} edges")
    edges = add_self_loops(edges, x.size(0))
    known = torch.zeros(x.size(0), dtype=torch.bool, device=x.device)
    known[torch.from_numpy(draw.permutation(x.size(0))[:12]).to(x.device)] = True
    for kind in ("gcn", "gat"):
        model = Network(kind, int(labels.max()) + 1).to(args.device)
        print(model)
        for p in filter(lambda p: p.dim() > 1, model.parameters()):
            p.data.copy_(torch.from_numpy(draw.normal(0, 0.3, tuple(p.shape))))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
        for step in range(args.steps):
            model.train()
            optimizer.zero_grad()
            loss = F.nll_loss(F.log_softmax(model(x, edges), dim=-1)[known], labels[known])
            loss.backward()
            optimizer.step()
            print(f"{kind} {step} loss {loss.item():.5f}")
        model.eval()
        with torch.no_grad():
            right = model(x, edges).argmax(-1).eq(labels)
            same = torch.eq(*labels[edges]).sum()
        print(f"{kind} accuracy {right[~known].float().mean():.3f}, edges within communities {int(same)}")


if __name__ == "__main__":
    main()
