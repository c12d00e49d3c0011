"""Kullback-Leibler divergences between distributions of different families, by moments of the first.

KL(p || q) is -H(p) - E[log q(x)]: each function here takes the expectations that q's density asks for. Where p may draw
what q cannot, the divergence is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from telegrad._ops.functions import function

from .bounded import ContinuousBernoulli
from .derived import Pareto
from .discrete import Bernoulli, Poisson
from .distribution import Distribution
from .gammas import Beta, Gamma
from .inverted import Gumbel
from .kl import infinite, register_kl
from .location_scale import Exponential, Laplace, Normal, Uniform


def _to_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


def _to_normal(p: Any, q: Any) -> Any:
    second = p.variance + (p.mean - q.loc).pow(2)
    return -p.entropy() + 0.5 * math.log(2 * math.pi) + q.scale.log() + second / (2 * q.scale.pow(2))


def _to_continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._log_norm()


def _to_uniform(p: Any, q: Any) -> Any:
    """For p that draws between 0 and 1."""
    return _where((q.low > 0) | (q.high < 1), -p.entropy() + (q.high - q.low).log())


def _to_gamma(p: Any, q: Any) -> Any:
    a, b = q.concentration, q.rate
    return -p.entropy() - a * b.log() + a.lgamma() - (a - 1) * _mean_log(p) + b * p.mean


def _to_gumbel(p: Any, q: Any) -> Any:
    shrunk = _mean_exp(p, q.scale.reciprocal())
    return -p.entropy() + q.scale.log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale).exp() * shrunk


def _mean_log(p: Any) -> Any:
    """Return E[log x]."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return _mean_log_between(p.low, p.high)


def _mean_log_between(low: Any, high: Any) -> Any:
    """Return E[log x] of what is uniform between two bounds; of 0 log 0 the limit."""
    return (function("xlogy")(high, high) - function("xlogy")(low, low)) / (high - low) - 1


def _mean_exp(p: Any, rate: Any) -> Any:
    """Return E[exp(-rate x)]."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + rate)
    if isinstance(p, Gamma):
        return (p.rate / (p.rate + rate)).pow(p.concentration)
    if isinstance(p, Normal):
        return (-p.loc * rate + 0.5 * (p.scale * rate).pow(2)).exp()
    return ((-p.low * rate).exp() - (-p.high * rate).exp()) / (rate * (p.high - p.low))


def _where(is_infinite: Any, kl: Any) -> Any:
    return kl.masked_fill(is_infinite, math.inf)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - p.probs * q.rate.log() + q.rate


@register_kl(Uniform, Beta)
def _uniform_beta(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    logs = (a - 1) * _mean_log(p) + (b - 1) * _mean_log_between(1 - p.high, 1 - p.low)
    kl = -p.entropy() + a.lgamma() + b.lgamma() - (a + b).lgamma() - logs
    return _where((p.low < 0) | (p.high > 1), kl)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Any, q: Any) -> Any:
    kl = -p.entropy() - q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * _mean_log(p)
    return _where(p.low < q.scale, kl)


def _from_uniform(to: Callable[[Any, Any], Any], limit: float) -> Callable[[Any, Any], Any]:
    return lambda p, q: _where((p.low < 0) | (p.high > limit), to(p, q))


def _from_pareto(to: Callable[[Any, Any], Any], moment: int) -> Callable[[Any, Any], Any]:
    return lambda p, q: _where(p.alpha <= moment, to(p, q))


_FINITE: dict[tuple[type[Distribution], type[Distribution]], Callable[[Any, Any], Any]] = {
    (Beta, ContinuousBernoulli): _to_continuous_bernoulli, (Beta, Exponential): _to_exponential,
    (Beta, Gamma): _to_gamma, (Beta, Uniform): _to_uniform, (ContinuousBernoulli, Exponential): _to_exponential,
    (ContinuousBernoulli, Normal): _to_normal, (ContinuousBernoulli, Uniform): _to_uniform,
    (Exponential, Gumbel): _to_gumbel, (Gamma, Gumbel): _to_gumbel, (Normal, Gumbel): _to_gumbel,
    (Uniform, Gumbel): _to_gumbel, (Gumbel, Normal): _to_normal,
    (Pareto, Exponential): _from_pareto(_to_exponential, 1),
    (Pareto, Gamma): _from_pareto(_to_gamma, 1), (Pareto, Normal): _from_pareto(_to_normal, 2),
    (Uniform, ContinuousBernoulli): _from_uniform(_to_continuous_bernoulli, 1),
    (Uniform, Exponential): _from_uniform(_to_exponential, math.inf),
    (Uniform, Gamma): _from_uniform(_to_gamma, math.inf),
}  # fmt: skip
_INFINITE = (
    (Beta, Pareto), (ContinuousBernoulli, Pareto), (Exponential, ContinuousBernoulli), (Gamma, ContinuousBernoulli),
    (Gumbel, Beta), (Gumbel, ContinuousBernoulli), (Gumbel, Exponential), (Gumbel, Gamma), (Gumbel, Pareto),
    (Gumbel, Uniform), (Laplace, ContinuousBernoulli), (Normal, ContinuousBernoulli), (Pareto, Beta),
    (Pareto, ContinuousBernoulli), (Pareto, Uniform),
)  # fmt: skip
for _pair, _formula in _FINITE.items():
    register_kl(*_pair)(_formula)
for _pair in _INFINITE:
    register_kl(*_pair)(lambda p, q: infinite(p))
