"""``LowRankMultivariateNormal`` is PyTorch's, and makes no matrix of the size of its covariance unasked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch


def _made(t: Any, rng: np.random.Generator, batch: tuple[int, ...] = (), m: int = 2) -> Any:
    loc, factor = rng.standard_normal((*batch, 4)), rng.standard_normal((4, m))
    return t.distributions.LowRankMultivariateNormal(*map(t.tensor, (loc, factor, rng.random((*batch, 4)) + 0.3)))


def _pairs(seed: int, tg: Any, **options: Any) -> list[Any]:
    return [_made(t, np.random.default_rng(seed), **options) for t in (tg, torch)]


def _close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
def test_all_that_it_tells(tg: Any, seed: int, batch: tuple[int, ...]) -> None:
    ours, theirs = _pairs(seed, tg, batch=batch)
    for name in ("mean", "variance", "covariance_matrix", "precision_matrix", "scale_tril"):
        _close(getattr(ours, name), getattr(theirs, name))
    values = np.random.default_rng(seed + 1).standard_normal((5, *batch, 4))
    _close(ours.log_prob(tg.tensor(values)), theirs.log_prob(torch.tensor(values)))
    _close(
        ours.expand((2, 3)).log_prob(tg.tensor(values[0, ..., :])),
        theirs.expand((2, 3)).log_prob(torch.tensor(values[0])),
    )
    _close(ours.entropy(), theirs.entropy())
    assert not isinstance(ours, tg.distributions.MultivariateNormal)


@pytest.mark.parametrize("other", ["low rank", "another batch", "full"])
def test_divergences_in_both_directions(tg: Any, seed: int, other: str) -> None:
    matrix = (torch.eye(4, dtype=torch.float64) * 2 + 0.5).expand(3, 4, 4)
    results = []
    for t in (tg, torch):
        p = _made(t, np.random.default_rng(seed), batch=(3,))
        if other == "full":
            q = t.distributions.MultivariateNormal(
                t.ones(4, dtype=t.float64), t.tensor(matrix.tolist(), dtype=t.float64)
            )
        else:
            q = _made(t, np.random.default_rng(seed + 1), batch=(2, 3) if other == "another batch" else (3,), m=3)
        results.append([t.distributions.kl_divergence(p, q), t.distributions.kl_divergence(q, p)])
    for ours, theirs in zip(*results, strict=True):
        _close(ours, theirs)


def test_samples_have_the_covariance(tg: Any, seed: int) -> None:
    tg.manual_seed(seed)
    made = _made(tg, np.random.default_rng(seed))
    covariance = np.cov(made.sample((20_000,)).numpy().T)
    np.testing.assert_allclose(covariance, made.covariance_matrix.numpy(), atol=0.05 * float(made.variance.max()))


def test_memory_grows_with_the_rank(tg: Any) -> None:
    n = 200_000  # whose covariance would take 320 GB
    made = tg.distributions.LowRankMultivariateNormal(tg.zeros(n), tg.full((n, 1), 1e-3), tg.ones(n))
    assert tuple(made.rsample().shape) == (n,)
    assert made.log_prob(tg.zeros(n)).item() == pytest.approx(-made.entropy().item() + n / 2, rel=1e-4)


def test_what_is_refused(tg: Any) -> None:
    for t in (torch, tg):
        make, one = t.distributions.LowRankMultivariateNormal, t.ones(4)
        for arguments in (
            (one, one, one),
            (one, t.ones(3, 1), one),
            (one, t.ones(4, 1), t.ones(3)),
            (one[0], t.ones(4, 1), one),
        ):
            with pytest.raises(ValueError):
                make(*arguments)
        with pytest.raises(ValueError, match="Geometric"):
            t.distributions.Geometric(0.0)
        with pytest.raises(TypeError):
            t.distributions.LogisticNormal(t.zeros(2), 1.0).log_prob(t.tensor([0, 1, 0]))
