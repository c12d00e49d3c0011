"""Variational inference: a network whose weights are distributions, on the diabetes data (Bayes by backprop)."""

# test: --steps 12
# agree: spread

from __future__ import annotations

import argparse
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_diabetes
from torch import nn
from torch.distributions import Gamma, Independent, LogNormal, Normal, StudentT, kl_divergence, register_kl


class ScaleMixture(Normal):
    """A prior whose log density is that of two normals of one centre."""

    def __init__(self, wide: torch.Tensor, narrow: torch.Tensor, weight: float) -> None:
        self.narrow, self.weight = narrow, weight
        super().__init__(torch.zeros_like(wide), wide)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        wide = super().log_prob(value) + math.log(self.weight)
        return torch.logaddexp(wide, Normal(self.loc, self.narrow).log_prob(value) + math.log(1 - self.weight))


@register_kl(Normal, ScaleMixture)
def _kl_normal_mixture(p: Normal, q: ScaleMixture) -> torch.Tensor:
    value = p.rsample()
    return p.log_prob(value) - q.log_prob(value)


class BayesianLinear(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight_loc = nn.Parameter(torch.empty(out_features, in_features))
        self.weight_rho = nn.Parameter(torch.full((out_features, in_features), -4.0))
        self.bias_loc = nn.Parameter(torch.zeros(out_features))
        self.bias_rho = nn.Parameter(torch.full((out_features,), -4.0))
        nn.init.xavier_normal_(self.weight_loc, gain=0.3)
        self.register_buffer("wide", torch.tensor(1.0))
        self.register_buffer("narrow", torch.tensor(0.1))
        self.kl: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = Normal(self.weight_loc, F.softplus(self.weight_rho))
        bias = Normal(self.bias_loc, F.softplus(self.bias_rho))
        prior = ScaleMixture(self.wide, self.narrow, 0.5)
        self.kl = kl_divergence(weight, prior).sum()
        self.kl = self.kl + kl_divergence(bias, Normal(0.0, 1.0)).sum()
        if self.training:  # local reparametrisation: noise of outputs, not of weights
            mean = F.linear(x, weight.mean, bias.rsample())
            return mean + torch.randn_like(mean) * F.linear(x.square(), weight.variance).clamp_min(1e-12).sqrt()
        return F.linear(x, weight.rsample(), bias.rsample())


class Regression(nn.Module):
    def __init__(self, features: int, hidden: int = 24) -> None:
        super().__init__()
        self.layers = nn.Sequential(BayesianLinear(features, hidden), nn.Tanh(), BayesianLinear(hidden, 1))
        self.noise_loc = nn.Parameter(torch.tensor(-1.0))
        self.noise_rho = nn.Parameter(torch.tensor(-2.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, LogNormal]:
        return self.layers(x).squeeze(-1), LogNormal(self.noise_loc, F.softplus(self.noise_rho))

    def elbo(self, x: torch.Tensor, y: torch.Tensor, total: int, beta: float) -> torch.Tensor:
        mean, noise = self(x)
        scale = noise.rsample()
        likelihood = Independent(StudentT(torch.tensor(6.0, device=x.device), mean, scale), 1).log_prob(y)
        prior = Gamma(torch.tensor(2.0, device=x.device), torch.tensor(2.0, device=x.device))
        kl = sum(layer.kl for layer in self.layers if isinstance(layer, BayesianLinear))
        kl = kl + noise.log_prob(scale) - prior.log_prob(scale)
        return likelihood / len(y) - beta * kl / total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    x, y = (torch.as_tensor(a, dtype=torch.float32) for a in load_diabetes(return_X_y=True))
    x = (x - x.mean(0, keepdim=True)) / x.std(0, keepdim=True)
    y = (y - y.mean()) / y.std()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(args.seed))
    x, y = x[order].to(args.device), y[order].to(args.device)
    (x_train, x_test), (y_train, y_test) = x.split([352, 90]), y.split([352, 90])

    model = Regression(x.shape[1]).to(args.device)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=40)
    for step in range(args.steps):
        beta = min(1.0, (step + 1) / 50)
        loss = -model.elbo(x_train, y_train, len(x_train), beta)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item())
        print(f"step {step} loss {loss.item():.4f}")

    model.eval()
    with torch.no_grad():
        draws = torch.stack([model(x_test)[0] for _ in range(32)])
        noise = model(x_test)[1].mean
        predictive = Normal(draws.mean(0), (draws.var(0) + noise**2).sqrt())
        inside = (
            (y_test > predictive.icdf(torch.tensor(0.05))) & (y_test < predictive.icdf(torch.tensor(0.95)))
        ).float()
        error = F.mse_loss(predictive.mean, y_test)
    print(f"mean squared error {error.item():.3f}, {inside.mean().item():.2f} of the values in the 90% interval")


if __name__ == "__main__":
    main()
