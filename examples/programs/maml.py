"""Model-agnostic meta-learning of sine waves with torch.func, and the gradients of single samples."""

# test: --steps 9
# agree: spread

from __future__ import annotations

import argparse
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, grad_and_value, jacrev, stack_module_state, vmap


def draw_tasks(tasks: int, shots: int, device: str) -> tuple[torch.Tensor, ...]:
    """Support and query points of waves with different amplitudes and phases."""
    amplitude = torch.empty(tasks, 1, 1, device=device).uniform_(0.1, 5.0)
    phase = torch.empty(tasks, 1, 1, device=device).uniform_(0.0, torch.pi)
    x = torch.empty(tasks, 2 * shots, 1, device=device).uniform_(-5.0, 5.0)
    y = amplitude * torch.sin(x - phase)
    return x[:, :shots], y[:, :shots], x[:, shots:], y[:, shots:]


class Net(nn.Module):
    def __init__(self, hidden: int = 40) -> None:
        super().__init__()
        self.fc1 = nn.Linear(1, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def loss_of(net: nn.Module, params: dict, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(functional_call(net, params, (x,)), y)


def adapt(net: nn.Module, params: dict, x: torch.Tensor, y: torch.Tensor, lr: float, steps: int) -> dict:
    for _ in range(steps):
        gradients = grad(partial(loss_of, net))(params, x, y)
        params = {name: p - lr * gradients[name] for name, p in params.items()}
    return params


def task_loss(net, lr, steps, params, x_support, y_support, x_query, y_query):
    return loss_of(net, adapt(net, params, x_support, y_support, lr, steps), x_query, y_query)


def per_sample_norms(net: nn.Module, params: dict, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Norm of the gradient of every sample, with one vectorised backward pass."""

    def sample_loss(params, x, y):
        return loss_of(net, params, x.unsqueeze(0), y.unsqueeze(0))

    gradients, values = vmap(grad_and_value(sample_loss), in_dims=(None, 0, 0))(params, x, y)
    assert values.shape == (len(x),)
    return torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--shots", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    net = Net().to(args.device)
    params = dict(net.named_parameters())
    optimizer = torch.optim.Adam(params.values(), lr=1e-2)
    inner = partial(task_loss, net, 0.01, 1)
    for step in range(args.steps):
        tasks = draw_tasks(args.tasks, args.shots, args.device)
        losses = vmap(inner, in_dims=(None, 0, 0, 0, 0))(params, *tasks)
        loss = losses.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")

    params = {name: p.detach() for name, p in params.items()}
    x, y, x_query, y_query = (t[0] for t in draw_tasks(1, args.shots, args.device))
    before = loss_of(net, params, x_query, y_query)
    after = loss_of(net, adapt(net, params, x, y, 0.01, 5), x_query, y_query)
    print(f"a new wave: {before.item():.3f} before, {after.item():.3f} after five steps")

    norms = per_sample_norms(net, params, x, y)
    single = grad(partial(loss_of, net))(params, x[:1], y[:1])
    torch.testing.assert_close(norms[0], torch.cat([g.flatten() for g in single.values()]).norm(), rtol=1e-4, atol=1e-5)

    models = [Net(8).to(args.device) for _ in range(3)]
    stacked, buffers = stack_module_state(models)
    outputs = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(stacked, buffers, x)
    torch.testing.assert_close(outputs, torch.stack([m(x) for m in models]), rtol=1e-4, atol=1e-5)

    slope = vmap(jacrev(lambda point: functional_call(net, params, (point,))))(x)
    print(f"mean slope {slope.abs().mean().item():.3f}, mean gradient norm {norms.mean().item():.3f}")


if __name__ == "__main__":
    main()
