"""Divergences between distributions of all families, and how distributions are printed, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

FAMILIES: dict[str, Callable[[Any, Callable[[float, float], Any]], Any]] = {
    "Bernoulli": lambda d, t: d.Bernoulli(t(0.1, 0.9)), "Beta": lambda d, t: d.Beta(t(0.5, 3), t(0.5, 3)),
    "Binomial": lambda d, t: d.Binomial(5, t(0.1, 0.9)), "Categorical": lambda d, t: d.Categorical(logits=t(-1, 1)),
    "Cauchy": lambda d, t: d.Cauchy(t(-1, 1), t(0.5, 2)),
    "ContinuousBernoulli": lambda d, t: d.ContinuousBernoulli(t(0.1, 0.4)),
    "Dirichlet": lambda d, t: d.Dirichlet(t(0.5, 3)), "Exponential": lambda d, t: d.Exponential(t(0.5, 3)),
    "Gamma": lambda d, t: d.Gamma(t(0.5, 3), t(0.5, 3)), "Geometric": lambda d, t: d.Geometric(t(0.1, 0.9)),
    "Gumbel": lambda d, t: d.Gumbel(t(-1, 1), t(0.5, 2)), "HalfNormal": lambda d, t: d.HalfNormal(t(0.5, 2)),
    "Laplace": lambda d, t: d.Laplace(t(-1, 1), t(0.5, 2)), "Normal": lambda d, t: d.Normal(t(-1, 1), t(0.5, 2)),
    "OneHotCategorical": lambda d, t: d.OneHotCategorical(logits=t(-1, 1)),
    "Pareto": lambda d, t: d.Pareto(t(0.5, 2), t(0.5, 4)), "Poisson": lambda d, t: d.Poisson(t(0.5, 3)),
    "Uniform": lambda d, t: d.Uniform(t(-0.05, 0.3), t(0.6, 1.05)),
}  # fmt: skip


def _divergences(library: Any, first: str, seed: int) -> list[Any]:
    random = np.random.default_rng(seed)

    def drawn(low: float, high: float) -> Any:
        return library.tensor(random.uniform(low, high, 6))

    found = []
    for second in FAMILIES:
        pair = [FAMILIES[name](library.distributions, drawn) for name in (first, second)]
        try:
            found.append(library.distributions.kl_divergence(*pair).numpy())
        except NotImplementedError:
            found.append(None)
    return found


@pytest.mark.parametrize("first", FAMILIES)
def test_divergences_from_each_family_to_all_are_pytorchs(tg: Any, seed: int, first: str) -> None:
    pairs = zip(FAMILIES, _divergences(tg, first, seed), _divergences(torch, first, seed), strict=True)
    for second, ours, theirs in pairs:
        assert (ours is None) == (theirs is None), second
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8, err_msg=second)


def _printed(d: Any, t: Any) -> list[str]:
    one = t.ones(2)
    normal = d.Normal(one, one)
    parts = [d.ExpTransform(), d.AffineTransform(0.0, 2.0)]
    mixture = d.MixtureSameFamily(d.Categorical(logits=one), normal)
    shown = [
        d.LogNormal(one, one), d.HalfNormal(one), d.Weibull(one, one), d.Pareto(one, one), d.InverseGamma(one, one),
        d.TransformedDistribution(normal, parts), d.ComposeTransform(parts), mixture.support,
        d.IndependentTransform(d.ExpTransform(), 1),
    ]  # fmt: skip
    return [repr(item).replace("telegrad.", "torch.") for item in shown]


def test_distributions_and_transforms_are_printed_as_by_pytorch(tg: Any) -> None:
    assert _printed(tg.distributions, tg) == _printed(torch.distributions, torch)
    weibull = tg.distributions.Weibull(tg.ones(2), tg.tensor([0.5, 2.0]))
    expected = torch.distributions.Weibull(torch.ones(2), torch.tensor([0.5, 2.0]))
    np.testing.assert_allclose(weibull.mode.numpy(), expected.mode.numpy(), rtol=1e-6)
