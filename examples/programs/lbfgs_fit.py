"""Fits with L-BFGS in double precision: a damped oscillation, a boundary value problem, and logistic regression."""

# test: --steps 6
# agree: 5e-3

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.optim import LBFGS

torch.set_default_dtype(torch.float64)


class DampedOscillation(nn.Module):
    """a exp(-b t) cos(w t + p) + c; the parameters are kept positive where they must be."""

    def __init__(self) -> None:
        super().__init__()
        self.amplitude = nn.Parameter(torch.tensor(1.0))
        self.log_decay = nn.Parameter(torch.tensor(-1.0))
        self.log_frequency = nn.Parameter(torch.tensor(1.0))
        self.phase = nn.Parameter(torch.zeros(()))
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        wave = torch.cos(self.log_frequency.exp() * t + self.phase)
        return self.amplitude * torch.exp(-self.log_decay.exp() * t) * wave + self.offset


def minimise(
    name: str, parameters: list[torch.Tensor], loss_of: Callable[[], torch.Tensor], steps: int, **options: object
) -> None:
    """Print the loss and the gradient's norm after each step."""
    optimizer = LBFGS(parameters, max_iter=5, history_size=10, **options)
    calls = 0

    def closure() -> torch.Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    for step in range(steps):
        loss = optimizer.step(closure)
        gradient = torch.cat([p.grad.flatten() for p in parameters])
        print(f"{name} {step}: {loss.item():.6f} ({gradient.norm():.5f}, {calls} evaluations)")


def fit_oscillation(steps: int, draw: np.random.Generator, device: torch.device) -> None:
    t = torch.linspace(0, 6, 80, device=device)
    wanted = 2.0 * torch.exp(-0.4 * t) * torch.cos(2.9 * t + 0.3) + 0.5
    wanted += 0.05 * torch.from_numpy(draw.standard_normal(80)).to(device)
    model = DampedOscillation().to(device)
    minimise("oscillation", [*model.parameters()], lambda: nn.functional.mse_loss(model(t), wanted), steps,
             line_search_fn="strong_wolfe")  # fmt: skip
    for name, value in model.named_parameters():
        print(f"  {name} = {value.item():.3f}")


def solve_boundary_problem(steps: int, draw: np.random.Generator, device: torch.device) -> None:
    """Solve u'' = -pi^2 sin(pi x), u(0) = u(1) = 0, with a network: derivatives with respect to its input."""
    model = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1)).to(device)
    for parameter in model.parameters():
        parameter.data = torch.as_tensor(draw.uniform(-1, 1, parameter.shape), device=device)
    x = torch.linspace(0, 1, 24, device=device).unsqueeze(1).requires_grad_()

    def residual() -> torch.Tensor:
        u = x * (1 - x) * model(x)
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
        return ((ddu + torch.pi**2 * torch.sin(torch.pi * x)) ** 2).mean()

    minimise("boundary", list(model.parameters()), residual, steps, line_search_fn="strong_wolfe")
    with torch.no_grad():
        error = (x * (1 - x) * model(x) - torch.sin(torch.pi * x)).abs().max()
    print(f"  error below {error.item():.3f}")


def classify(steps: int, device: torch.device) -> None:
    inputs, labels = load_breast_cancer(return_X_y=True)
    x = torch.tensor((inputs - inputs.mean(0)) / inputs.std(0), device=device)
    y = torch.tensor(labels, dtype=x.dtype, device=device)
    weight = torch.zeros(x.shape[1], requires_grad=True, device=device)
    bias = torch.zeros(1, requires_grad=True, device=device)

    def loss_of() -> torch.Tensor:
        logits = torch.addmv(bias.expand(len(x)), x, weight)
        return nn.functional.binary_cross_entropy_with_logits(logits, y) + 1e-2 * weight.dot(weight)

    minimise("logistic", [weight, bias], loss_of, steps, lr=0.5)
    right = ((x @ weight.detach() + bias.detach() > 0) == y.bool()).double().mean()
    print(f"  accuracy {right:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw, device = np.random.default_rng(args.seed), torch.device(args.device)
    fit_oscillation(args.steps, draw, device)
    solve_boundary_problem(args.steps, draw, device)
    classify(args.steps, device)


if __name__ == "__main__":
    main()
