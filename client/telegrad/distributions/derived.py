"""Distributions that are transforms of simpler ones."""

from __future__ import annotations

import math
from typing import Any

from telegrad._ops.functions import function

from . import constraints
from .composed import TransformedDistribution
from .discrete import _ByOdds
from .distribution import Distribution
from .gammas import Gamma
from .location_scale import Cauchy, Exponential, Normal
from .transforms import AbsTransform, AffineTransform, ExpTransform, PowerTransform, SigmoidTransform
from .utils import broadcast_all, clamp_probs, draws, euler_constant, uniform_open
from .vector_transforms import StickBreakingTransform


class LogNormal(TransformedDistribution):
    """Distributions whose logarithm is normal."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale), ExpTransform(), validate_args)

    @property
    def loc(self) -> Any:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Any:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Any:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Any:
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Any:
        return (self.scale**2).expm1() * (2 * self.loc + self.scale**2).exp()

    def entropy(self) -> Any:
        return self.base_dist.entropy() + self.loc


class _Half(TransformedDistribution):
    """The absolute value of a symmetric distribution around 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    @property
    def scale(self) -> Any:
        """The scale of both sides."""
        return self.base_dist.scale

    @property
    def mode(self) -> Any:
        return function("zeros_like")(self.scale)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        log_prob = self.base_dist.log_prob(value) + math.log(2)
        return log_prob.where(value >= 0, log_prob * 0 - math.inf)

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Any) -> Any:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Any:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """Absolute values of normal variables."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0.0, scale), AbsTransform(), validate_args)

    @property
    def mean(self) -> Any:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        return self.scale**2 * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """Absolute values of Cauchy variables."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0.0, scale), AbsTransform(), validate_args)

    @property
    def mean(self) -> Any:
        return function("full_like")(self.scale, math.inf)

    @property
    def variance(self) -> Any:
        return self.base_dist.variance


class Weibull(TransformedDistribution):
    """Weibull distributions."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        transforms = [PowerTransform(self.concentration.reciprocal()), AffineTransform(0, self.scale)]
        super().__init__(Exponential(function("ones_like")(self.scale)), transforms, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Weibull(self.scale.expand(batch_shape), self.concentration.expand(batch_shape))

    @property
    def mean(self) -> Any:
        return self.scale * (1 + 1 / self.concentration).lgamma().exp()

    @property
    def mode(self) -> Any:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Any:
        k = self.concentration
        return self.scale**2 * ((1 + 2 / k).lgamma().exp() - (2 * (1 + 1 / k).lgamma()).exp())

    def entropy(self) -> Any:
        k = self.concentration
        return euler_constant * (1 - 1 / k) + (self.scale / k).log() + 1


class Pareto(TransformedDistribution):
    """Pareto distributions of the first kind."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(Exponential(self.alpha), [ExpTransform(), AffineTransform(0, self.scale)], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return Pareto(self.scale.expand(batch_shape), self.alpha.expand(batch_shape))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Any:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        a = self.alpha.clamp(min=2)
        return self.scale**2 * a / ((a - 1) ** 2 * (a - 2))

    def entropy(self) -> Any:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class InverseGamma(TransformedDistribution):
    """Distributions whose reciprocal has a gamma distribution."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate)
        super().__init__(base, PowerTransform(-function("ones_like")(base.rate)), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return InverseGamma(self.concentration.expand(batch_shape), self.rate.expand(batch_shape))

    @property
    def concentration(self) -> Any:
        """The shape of the gamma distribution."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Any:
        """The rate of the gamma distribution."""
        return self.base_dist.rate

    @property
    def mean(self) -> Any:
        a = self.concentration
        return (self.rate / (a - 1)).masked_fill(a <= 1, math.inf)

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        a = self.concentration
        return (self.rate**2 / ((a - 1) ** 2 * (a - 2))).masked_fill(a <= 2, math.inf)

    def entropy(self) -> Any:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()


class LogisticNormal(TransformedDistribution):
    """Normal vectors made simplices by breaking a stick."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Any:
        """The means of the normal variables."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Any:
        """The standard deviations of the normal variables."""
        return self.base_dist.base_dist.scale


class LogitRelaxedBernoulli(_ByOdds):
    """Relaxed Bernoulli variables, in log odds (Maddison, Mnih, Teh 2017)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        self.temperature = temperature
        self._set_odds(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        noise = clamp_probs(draws("rand", shape, self._param))
        return (noise.log() - (-noise).log1p() + self.logits) / self.temperature

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        away = self.logits - value * self.temperature
        if not isinstance(self.temperature, (int, float)):
            return self.temperature.log() + away - 2 * away.exp().log1p()
        return math.log(self.temperature) + away - 2 * away.exp().log1p()


class _Relaxed(TransformedDistribution):
    """Choices made continuous by a temperature."""

    @property
    def temperature(self) -> Any:
        """How far from whole choices samples may be."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """Log odds of one event, or log probabilities of several."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self.base_dist.probs


class RelaxedBernoulli(_Relaxed):
    """Bernoulli variables made continuous by a temperature."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args)


class ExpRelaxedCategorical(Distribution):
    """Logarithms of relaxed one-hot vectors."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        from_logits = probs is None
        value = logits if from_logits else (probs / probs.sum(-1, True)).log()
        self.temperature = temperature
        self.logits = value - value.logsumexp(-1, True)
        super().__init__(value.shape[:-1], value.shape[-1:], validate_args)

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self.logits.softmax(-1)

    def rsample(self, sample_shape: Any = ()) -> Any:
        noise = uniform_open(self._extended_shape(sample_shape), self.logits)
        scores = (self.logits - (-noise.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, True)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        k = self._event_shape[0]
        t = self._like(self.temperature)
        score = self.logits - value * t
        score = (score - score.logsumexp(-1, True)).sum(-1)
        return score + math.lgamma(k) - t.log() * -(k - 1)


class RelaxedOneHotCategorical(_Relaxed):
    """One-hot vectors made continuous by a temperature."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        super().__init__(ExpRelaxedCategorical(temperature, probs, logits), ExpTransform(), validate_args)
