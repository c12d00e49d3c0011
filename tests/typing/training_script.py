"""A training script as users write it; type checkers accept all of it in their strict modes."""

from __future__ import annotations

from pathlib import Path

import telegrad as tg
import telegrad.nn.functional as F
from telegrad import Tensor, nn, optim


class Classifier(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(32, classes)
        self.register_buffer("steps", tg.zeros((), dtype=tg.int64))

    def forward(self, input: Tensor) -> Tensor:
        hidden: Tensor = self.body(input)
        return F.linear(hidden, self.head.weight, self.head.bias)


def batches(inputs: Tensor, labels: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    order = tg.randperm(inputs.shape[0], device=inputs.device)
    return [(inputs[part], labels[part]) for part in order.split(size)]


def train(model: Classifier, optimizer: optim.Optimizer, inputs: Tensor, labels: Tensor) -> float:
    model.train()
    total = tg.zeros(1, device=inputs.device)
    for batch, target in batches(inputs, labels, size=16):
        optimizer.zero_grad()
        with tg.autocast(device_type="cpu", dtype=tg.bfloat16):
            loss = F.cross_entropy(model(batch), target, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        total += loss.detach()
    return float(total.item())


@tg.no_grad()
def evaluate(model: Classifier, inputs: Tensor, labels: Tensor) -> float:
    model.eval()
    scores: Tensor = model(inputs)
    best = tg.max(scores, 1).indices
    confidence, _ = F.softmax(scores, dim=-1).topk(k=2, dim=-1)
    assert confidence[..., 0].ge(confidence[:, -1]).all()
    return (best == labels).float().mean().item()  # type: ignore[no-any-return]


def main(folder: Path, device: str = "cpu") -> tuple[float, float]:
    with tg.connect():
        tg.manual_seed(0)
        inputs = tg.randn(64, 8, device=device)
        labels = (inputs[:, :3].sum(dim=1) > 0).to(tg.int64)
        model = Classifier(8, classes=2).to(device)
        optimizer = optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
        scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
        loss = 0.0
        for _ in range(3):
            loss = train(model, optimizer, inputs, labels)
            scheduler.step()
        tg.save(model.state_dict(), folder / "model.safetensors")
        model.load_state_dict(tg.load(folder / "model.safetensors"))
        order = inputs.sort(dim=0, descending=True)
        assert tg.equal(order.values[0], inputs.amax(dim=0)) and 2 * order.indices.numel() == 1024
        if tg.cuda.device_count() > 1:
            with tg.cuda.device(1), tg.device("cuda:1"), tg.cuda.stream(tg.cuda.Stream(device=1)):
                copies = tg.cuda.comm.broadcast(inputs, [0, 1])
            scores: Tensor = nn.DataParallel(model, device_ids=[0, 1])(copies[0])
            assert scores.device == tg.device("cuda", 0) and tg.cuda.get_device_properties(1).total_memory > 0
        return loss, evaluate(model, inputs, labels)
