"""A neural ordinary differential equation that learns a spiral; its gradients solve the adjoint equation backwards."""

# test: --steps 8
# agree: spread

from __future__ import annotations

import argparse

import torch
import torch.nn as nn


def rk4_step(func, t: torch.Tensor, dt: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    k1 = func(t, y)
    k2 = func(t + dt / 2, y + dt * k1 / 2)
    k3 = func(t + dt / 2, y + dt * k2 / 2)
    k4 = func(t + dt, y + dt * k3)
    return y + dt * (k1 + 2 * k2 + 2 * k3 + k4) / 6


def integrate(func, y0: torch.Tensor, t: torch.Tensor, substeps: int = 2) -> torch.Tensor:
    y, ys = y0, [y0]
    for i in range(len(t) - 1):
        t0, dt = t[i], (t[i + 1] - t[i]) / substeps
        for j in range(substeps):
            y = rk4_step(func, t0 + j * dt, dt, y)
        ys.append(y)
    return torch.stack(ys)


class OdeintAdjoint(torch.autograd.Function):
    """The solution at given times; backward keeps no step, but integrates state and adjoint back together."""

    @staticmethod
    def forward(ctx, func, y0, t, *params):
        with torch.no_grad():
            ys = integrate(func, y0, t)
        ctx.func = func
        ctx.save_for_backward(t, ys, *params)
        return ys

    @staticmethod
    def backward(ctx, grad_ys):
        func = ctx.func
        t, ys, *params = ctx.saved_tensors
        sizes = [p.numel() for p in params]

        def augmented(s, state):
            y, adjoint = state[: ys[0].numel()].view_as(ys[0]), state[ys[0].numel() : 2 * ys[0].numel()].view_as(ys[0])
            with torch.enable_grad():
                y = y.detach().requires_grad_(True)
                f = func(s, y)
                gradients = torch.autograd.grad(f, (y, *params), -adjoint, allow_unused=True, retain_graph=True)
            gradients = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, (y, *params))]
            return torch.cat([f.detach().reshape(-1), *(g.reshape(-1) for g in gradients)])

        adjoint = grad_ys[-1].clone()
        parameter_gradients = torch.zeros(sum(sizes), dtype=ys.dtype, device=ys.device)
        with torch.no_grad():
            for i in range(len(t) - 1, 0, -1):
                state = torch.cat([ys[i].reshape(-1), adjoint.reshape(-1), parameter_gradients])
                state = integrate(augmented, state, torch.stack([t[i], t[i - 1]]))[-1]
                _, adjoint, parameter_gradients = state.split([ys[i].numel(), ys[i].numel(), sum(sizes)])
                adjoint = adjoint.view_as(ys[i]) + grad_ys[i - 1]
        pieces = parameter_gradients.split(sizes)
        return None, adjoint, None, *(g.view_as(p) for g, p in zip(pieces, params))


class ODEFunc(nn.Module):
    def __init__(self, dim: int = 2, hidden: int = 50) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, dim))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y**3)


def odeint(func: nn.Module, y0: torch.Tensor, t: torch.Tensor, adjoint: bool = True) -> torch.Tensor:
    return OdeintAdjoint.apply(func, y0, t, *func.parameters()) if adjoint else integrate(func, y0, t)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], device=args.device)
    times = torch.linspace(0.0, 10.0, 201, device=args.device)
    with torch.no_grad():
        truth = integrate(lambda t, y: (y**3) @ matrix, torch.tensor([[2.0, 0.0]], device=args.device), times)

    func = ODEFunc().to(args.device)
    window = 5
    y0, t = truth[torch.arange(4)], times[:window]
    plain = torch.autograd.grad(odeint(func, y0, t, adjoint=False).sum(), list(func.parameters()))
    ours = torch.autograd.grad(odeint(func, y0, t).sum(), list(func.parameters()))
    assert all(torch.allclose(a, b, rtol=1e-2, atol=1e-2) for a, b in zip(plain, ours))

    optimizer = torch.optim.RMSprop(func.parameters(), lr=2e-3)
    for step in range(args.steps):
        start = torch.randperm(len(times) - window, device=args.device)[:20]
        y0 = truth[start]
        target = torch.stack([truth[start + i] for i in range(window)], dim=0)
        prediction = odeint(func, y0, t)
        loss = (prediction - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
