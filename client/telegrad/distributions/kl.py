"""Kullback-Leibler divergences of pairs of distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from telegrad._ops.functions import function

from .bounded import ContinuousBernoulli
from .categorical import Categorical, OneHotCategorical
from .composed import Independent, TransformedDistribution
from .derived import HalfNormal, LogNormal, Pareto
from .discrete import Bernoulli, Binomial, Geometric, Poisson
from .distribution import Distribution
from .gammas import Beta, Dirichlet, Gamma
from .inverted import Gumbel
from .location_scale import Cauchy, Exponential, Laplace, Normal, Uniform
from .low_rank import LowRankMultivariateNormal
from .multivariate import MultivariateNormal, Wishart, half_log_det, solve_lower
from .utils import euler_constant, sum_rightmost

Rule: TypeAlias = Callable[[Any, Any], Any]
_KL_REGISTRY: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """Decorate a function of two distributions that returns their divergence."""
    if not (isinstance(type_p, type) and isinstance(type_q, type)):
        raise TypeError(f"Expected type_p and type_q to be subclasses of Distribution, not {type_p!r}, {type_q!r}")

    def decorate(function: Rule) -> Rule:
        _KL_REGISTRY[type_p, type_q] = function
        return function

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """Return the divergence KL(p || q) of each pair in the batch.

    Raises NotImplementedError for types of which no formula is registered.
    """
    pairs = [(a, b) for a in type(p).__mro__ for b in type(q).__mro__ if (a, b) in _KL_REGISTRY]
    if not pairs:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                                  f"{type(q).__name__}; estimate it by samples, or use register_kl")  # fmt: skip
    return _KL_REGISTRY[pairs[0]](p, q)


def infinite(p: Any) -> Any:
    """Return an infinite divergence for each distribution of a batch."""
    return function("full_like")(p.mean, math.inf)


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    soft = _softplus
    one = p.probs * (soft(-q.logits) - soft(-p.logits))
    return one + (1 - p.probs) * (soft(q.logits) - soft(p.logits))


def _softplus(x: Any) -> Any:
    return function("logaddexp")(function("zeros_like")(x), x)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return kl.masked_fill(p.total_count > q.total_count, math.inf)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = terms.masked_fill((q.probs == 0).expand_as(terms), math.inf)
    return terms.masked_fill((p.probs == 0).expand_as(terms), 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    start = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return start + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Any:
    return _gamma(Gamma(function("ones_like")(p.rate), p.rate), q)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Any:
    return _gamma(p, Gamma(function("ones_like")(q.rate), q.rate))


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norm = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norm + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    together = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return together.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (q.loc - p.loc) / q.scale
    return -ratio.log() - away + ratio * euler_constant + (away + (1 + ratio).lgamma()).exp() - (1 + euler_constant)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return kl.masked_fill((q.low > p.low) | (q.high < p.high), math.inf)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(LogNormal, LogNormal)
def _log_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio, scales = q.alpha / p.alpha, p.scale / q.scale
    kl = q.alpha * scales.log() - ratio.log() + ratio - 1
    return kl.masked_fill(p.scale < q.scale, math.inf)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    start = p.mean * (p.logits - q.logits)
    return start + p._log_norm() + (-p.probs).log1p() - q._log_norm() - (-q.probs).log1p()


def _check_events(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed"
        )


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank_of_low_rank(p: Any, q: Any) -> Any:
    _check_events(p, q)
    taken, spread = q._whitened_factor(), (p.cov_factor.pow(2).sum(-1) + p.cov_diag) / q.cov_diag
    along = (taken @ p.cov_factor).pow(2).sum((-2, -1)) + (taken.pow(2) * p.cov_diag.unsqueeze(-2)).sum((-2, -1))
    away = q._squared_distance(q.loc - p.loc)
    return q._half_log_det() - p._half_log_det() + 0.5 * (spread.sum(-1) - along + away - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _low_rank_of_multivariate_normal(p: Any, q: Any) -> Any:
    _check_events(p, q)
    a = p._unbroadcasted_scale_tril
    spread = (a.pow(2).sum(-1) / q.cov_diag).sum(-1) - (q._whitened_factor() @ a).pow(2).sum((-2, -1))
    away = q._squared_distance(q.loc - p.loc)
    return q._half_log_det() - half_log_det(a) + 0.5 * (spread + away - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _multivariate_normal_of_low_rank(p: Any, q: Any) -> Any:
    _check_events(p, q)
    b, both = q._unbroadcasted_scale_tril, function("cat")([p.cov_factor, p.cov_diag.sqrt().diag_embed()], -1)
    spread = solve_lower(b, both).pow(2).sum((-2, -1))
    away = solve_lower(b, (q.loc - p.loc).unsqueeze(-1)).squeeze(-1).pow(2).sum(-1)
    return half_log_det(b) - p._half_log_det() + 0.5 * (spread + away - p.event_shape[0])


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Any:
    _check_events(p, q)
    a, b = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    away = solve_lower(b, (q.loc - p.loc).unsqueeze(-1)).squeeze(-1).pow(2).sum(-1)
    trace = solve_lower(b, a).pow(2).sum((-2, -1))
    return half_log_det(b) - half_log_det(a) + 0.5 * (trace + away - p.event_shape[0])


@register_kl(Wishart, Wishart)
def _wishart(p: Any, q: Any) -> Any:
    n, half = p.event_shape[0], p.df / 2
    dets = q.df * (half_log_det(q.scale_tril) - half_log_det(p.scale_tril))
    trace = half * (solve_lower(q.scale_tril, p.scale_tril).pow(2).sum((-2, -1)) - n)
    digammas = (half.unsqueeze(-1) - p._steps() / 2).digamma().sum(-1)
    return dets + trace + p._multigamma(q.df / 2) - p._multigamma(half) + (half - q.df / 2) * digammas


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("Independents of different dimensions have no divergence")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("distributions transformed in different ways have no divergence")
    more = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), more)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    away = p.loc - q.loc
    ratio = away / p.scale
    mean = math.sqrt(2 / math.pi) * p.scale * (-0.5 * ratio.pow(2)).exp() + away * (math.sqrt(0.5) * ratio).erf()
    return -p.scale.log() + mean / q.scale + (2 * q.scale).log() - 0.5 * math.log(2 * math.pi) - 0.5


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Any:
    width = p.high - p.low
    second = ((p.high + p.low - 2 * q.loc) / 2).pow(2) + width.pow(2) / 12
    return (math.sqrt(2 * math.pi) * q.scale / width).log() + 0.5 * second / q.scale.pow(2)


@register_kl(Exponential, Normal)
def _exponential_normal(p: Any, q: Any) -> Any:
    variance, rate = q.scale.pow(2), p.rate
    second = 2 / rate.pow(2) - 2 * q.loc / rate + q.loc.pow(2)
    return rate.log() - 1 + 0.5 * (2 * math.pi * variance).log() + second / (2 * variance)


@register_kl(Gamma, Normal)
def _gamma_normal(p: Any, q: Any) -> Any:
    second = p.variance + (p.mean - q.loc).pow(2)
    return -p.entropy() + 0.5 * math.log(2 * math.pi) + q.scale.log() + second / (2 * q.scale.pow(2))


@register_kl(Laplace, Normal)
def _laplace_normal(p: Any, q: Any) -> Any:
    second = p.variance + (p.loc - q.loc).pow(2)
    return -p.entropy() + 0.5 * math.log(2 * math.pi) + q.scale.log() + second / (2 * q.scale.pow(2))


@register_kl(Beta, Normal)
def _beta_normal(p: Any, q: Any) -> Any:
    return _gamma_normal(p, q)


for _pair in (
    (Normal, Exponential), (Normal, Gamma), (Normal, Beta), (Normal, Uniform), (Laplace, Exponential),
    (Laplace, Gamma), (Laplace, Beta), (Laplace, Uniform), (Exponential, Beta), (Exponential, Uniform),
    (Gamma, Beta), (Gamma, Uniform), (Exponential, Pareto), (Gamma, Pareto), (Normal, Pareto), (Laplace, Pareto),
    (Poisson, Bernoulli), (Poisson, Binomial),
):  # fmt: skip
    register_kl(*_pair)(lambda p, q: infinite(p))
