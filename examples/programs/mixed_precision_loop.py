"""A training loop with all that grows on one: autocast, GradScaler, accumulation, checkpointing, EMA, resuming."""

# test: --steps 6
# agree: 2e-2

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset, random_split


class Mixer(nn.Module):
    """A residual block that may be computed again in the backward pass."""

    def __init__(self, width: int, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.body = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.recompute and self.training:
            return x + checkpoint(self.body, x, use_reentrant=False)
        return x + self.body(x)


class Trainer:
    """Everything that a checkpoint holds."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.device = args, torch.device(args.device)
        self.model = nn.Sequential(nn.Linear(16, 32), Mixer(32, True), Mixer(32, True), nn.Linear(32, 4)).to(
            self.device
        )
        decay, rest = [], []
        for parameter in self.model.parameters():
            (decay if parameter.ndim >= 2 else rest).append(parameter)
        groups = [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-3)
        warmup = torch.optim.lr_scheduler.LinearLR(self.optimizer, start_factor=0.2, total_iters=3)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=50, eta_min=1e-5)
        self.scheduler = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [warmup, cosine], milestones=[3])
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.device.type == "cuda")
        self.ema = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
        self.step = 0

    def set_weights(self, draw: np.random.Generator) -> None:
        state = self.model.state_dict()
        for name, value in state.items():
            if value.ndim > 1:
                state[name] = torch.from_numpy(draw.normal(0, value.shape[1] ** -0.5, value.shape)).to(value.dtype)
            elif name.endswith("bias"):
                state[name] = torch.zeros_like(value)
        self.model.load_state_dict(state, strict=True)

    def state_dict(self) -> dict[str, Any]:
        parts = ("model", "optimizer", "scheduler", "scaler", "ema")
        return {
            **{part: getattr(self, part).state_dict() for part in parts},
            "step": self.step,
            "args": vars(self.args),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part in ("model", "optimizer", "scheduler", "scaler", "ema"):
            getattr(self, part).load_state_dict(state[part])
        self.step = state["step"]

    def train_step(self, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
        """Accumulate the gradients of four micro-batches and update once; return loss and gradient's norm."""
        self.model.train()
        total, cast = 0.0, self.args.precision
        context = torch.autocast(self.device.type, dtype=getattr(torch, cast)) if cast != "float32" else nullcontext()
        for micro_x, micro_y in zip(x.chunk(4), y.chunk(4)):
            with context:
                loss = F.cross_entropy(self.model(micro_x), micro_y, label_smoothing=0.05) / 4
            self.scaler.scale(loss).backward()
            total += loss.detach().item()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        self.ema.update_parameters(self.model)
        self.step += 1
        return total, norm.item()

    @torch.no_grad()
    def evaluate(self, loader: DataLoader) -> float:
        self.ema.eval()
        losses = [F.cross_entropy(self.ema(x.to(self.device)), y.to(self.device), reduction="sum") for x, y in loader]
        return (torch.stack(losses).sum() / len(loader.dataset)).item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--precision", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = np.random.default_rng(args.seed)
    x = draw.standard_normal((640, 16)).astype(np.float32)
    y = np.argmax(x @ draw.standard_normal((16, 4)) + 0.1 * draw.standard_normal((640, 4)), axis=1)
    data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    train, valid = random_split(data, [0.8, 0.2], generator=torch.Generator().manual_seed(0))
    valid = torch.utils.data.Subset(data, range(512, 640))
    trainer = Trainer(args)
    trainer.set_weights(draw)
    print(f"{len(train)} to train, {len(valid)} to validate")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        while trainer.step < args.steps:
            rows = torch.from_numpy(draw.integers(0, 512, 64))
            loss, norm = trainer.train_step(*(t[rows].to(trainer.device) for t in data.tensors))
            rate = trainer.scheduler.get_last_lr()[0]
            print(f"step {trainer.step} lr {rate:.6f} loss {loss:.4f} norm {norm:.3f}")
            if trainer.step == args.steps // 2:
                torch.save(trainer.state_dict(), path)
                trainer = Trainer(args)
                trainer.load_state_dict(torch.load(path, map_location=args.device, weights_only=True))
                print(f"resumed at step {trainer.step}, average of {int(trainer.ema.n_averaged)} models")
    print(f"validation {trainer.evaluate(DataLoader(valid, batch_size=50)):.4f}")


if __name__ == "__main__":
    main()
