"""Low-rank adaptation: a network that knows the digits 0 to 4 learns 5 to 9 with few new weights, the others frozen."""

# test: --steps 12
# agree: spread

from __future__ import annotations

import argparse
import copy
import math

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class LoRALinear(nn.Module):
    """A frozen linear layer, plus the product of two thin matrices that are trained."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.base = base
        self.scaling = alpha / rank
        self.lora_dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.lora_A = nn.Parameter(base.weight.new_empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank).to(base.weight))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.merged = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        if self.merged:
            return y
        return y + F.linear(F.linear(self.lora_dropout(x), self.lora_A), self.lora_B) * self.scaling

    @torch.no_grad()
    def merge(self) -> nn.Linear:
        self.base.weight.data += self.scaling * self.lora_B @ self.lora_A
        self.merged = True
        return self.base

    def extra_repr(self) -> str:
        return f"rank={self.lora_A.shape[0]}, scaling={self.scaling}"


def inject(model: nn.Module, rank: int, alpha: float) -> nn.Module:
    """Replace every linear layer but the head, and freeze what is not the adaptation's."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and not name.startswith("head"):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], LoRALinear(module, rank, alpha))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name or name.startswith("head"))
    return model


class Net(nn.Module):
    def __init__(self, width: int = 64, classes: int = 5) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def batches(x: Tensor, y: Tensor, device: str, generator: torch.Generator):
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True, generator=generator)
    while True:
        for xb, yb in loader:
            yield xb.to(device, non_blocking=True), yb.to(device, non_blocking=True)


def train(model: nn.Module, data, steps: int, lr: float, label: str) -> None:
    model.train()
    optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for step, (x, y) in zip(range(steps), data):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"{label} step {step} loss {loss.item():.4f}")
    optimizer.zero_grad(set_to_none=True)


@torch.inference_mode()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    return (model(x).argmax(dim=1) == y).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)

    digits = load_digits()
    x, y = torch.from_numpy(digits.data).float() / 16, torch.from_numpy(digits.target).long()
    small = y < 5
    model = Net().to(args.device)
    train(model, batches(x[small], y[small], args.device, generator), args.steps, 1e-2, "pretraining")

    before = copy.deepcopy(model.state_dict())
    model.head.reset_parameters()
    inject(model, args.rank, alpha=8).to(args.device)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"{trained} of {sum(p.numel() for p in model.parameters())} weights are trained")
    train(model, batches(x[~small], y[~small] - 5, args.device, generator), args.steps, 1e-2, "adaptation")

    assert torch.equal(before["body.0.weight"], model.body[0].base.weight)
    assert not any(p.requires_grad for n, p in model.named_parameters() if ".base." in n)
    xs, ys = x[~small].to(args.device), (y[~small] - 5).to(args.device)
    adapted = accuracy(model, xs, ys)
    for index in (0, 3):
        model.body[index] = model.body[index].merge()
    assert abs(accuracy(model, xs, ys) - adapted) < 0.01
    lora_keys = [k for k in model.state_dict() if "lora_" in k]
    print(f"accuracy {adapted:.3f}, {len(lora_keys)} adapters left")


if __name__ == "__main__":
    main()
