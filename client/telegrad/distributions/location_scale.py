"""Distributions of real numbers whose cumulative probabilities have closed forms."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from telegrad._ops.functions import function
from telegrad_protocol.errors import ArgumentError

from . import constraints
from .distribution import Distribution, ExponentialFamily
from .utils import broadcast_all, draws, uniform_open


class _LocationScale(Distribution):
    """A distribution that is moved by ``loc``, where it is highest, and stretched by ``scale``."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc


class _Inverted(Distribution):
    """Samples by the inverse of the cumulative probability."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return self._quantile(uniform_open(shape, self._first()))

    def _first(self) -> Any:
        return next(value for name, value in vars(self).items() if name in self.arg_constraints)

    def _quantile(self, probability: Any) -> Any:
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        return self._quantile(value)


class Normal(_LocationScale, ExponentialFamily):
    """Normal distributions."""

    has_rsample = True

    @property
    def stddev(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        return self.scale**2

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.loc + draws("randn", self._extended_shape(sample_shape), self.loc) * self.scale

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return -(((value - self.loc) / self.scale) ** 2) / 2 - self.scale.log() - math.log(2 * math.pi) / 2

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return 0.5 * (1 + ((value - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Any:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


class Laplace(_LocationScale, _Inverted):
    """Laplace distributions."""

    @property
    def variance(self) -> Any:
        return 2 * self.scale**2

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * (-away.abs() / self.scale).expm1()

    def _quantile(self, probability: Any) -> Any:
        term = probability - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Any:
        return 1 + (2 * self.scale).log()


class Cauchy(_LocationScale, _Inverted):
    """Cauchy distributions."""

    @property
    def mean(self) -> Any:
        return function("full_like")(self.loc, math.nan)

    @property
    def variance(self) -> Any:
        return function("full_like")(self.loc, math.inf)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def _quantile(self, probability: Any) -> Any:
        return self.loc + self.scale * (math.pi * (probability - 0.5)).tan()

    def entropy(self) -> Any:
        return math.log(4 * math.pi) + self.scale.log()


class Uniform(_Inverted):
    """Uniform distributions over [low, high)."""

    arg_constraints = {
        "low": constraints.dependent(is_discrete=False, event_dim=0),
        "high": constraints.dependent(is_discrete=False, event_dim=0),
    }

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    def _check_parameters(self, names: Collection[str] | None = None) -> None:
        if not bool((self.low < self.high).all()):
            raise ArgumentError(
                f"Expected parameter low (Tensor of shape {tuple(self.low.shape)}) of distribution {self!r} to be less "
                f"than high: Uniform is not defined when low >= high, but found invalid values:\n{self.low}"
            )

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Any:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Any:
        return function("full_like")(self.low, math.nan)

    @property
    def stddev(self) -> Any:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Any:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.low + draws("rand", self._extended_shape(sample_shape), self.low) * (self.high - self.low)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        inside = ((self.low <= value) & (self.high > value)).type_as(self.low)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def _quantile(self, probability: Any) -> Any:
        return probability * (self.high - self.low) + self.low

    def entropy(self) -> Any:
        return (self.high - self.low).log()


class Exponential(ExponentialFamily, _Inverted):
    """Exponential distributions."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.rate.reciprocal()

    stddev = mean

    @property
    def mode(self) -> Any:
        return function("zeros_like")(self.rate)

    @property
    def variance(self) -> Any:
        return self.rate.pow(-2)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return -(-self.rate * value).expm1()

    def _quantile(self, probability: Any) -> Any:
        return -(-probability).log1p() / self.rate

    def entropy(self) -> Any:
        return 1 - self.rate.log()


class GeneralizedPareto(_Inverted):
    """Generalised Pareto distributions."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        k = self.concentration
        upper = (self.loc - self.scale / k).where(k < 0, k * 0 + math.inf)
        return constraints.interval(self.loc, upper)

    @property
    def mean(self) -> Any:
        k = self.concentration
        return (self.loc + self.scale / (1 - k)).where(k < 1, k * 0 + math.inf)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        k = self.concentration
        return (self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k))).where(k < 0.5, k * 0 + math.inf)

    def log_survival_function(self, value: Any) -> Any:
        """Return logarithms of the probabilities of larger values."""
        z, k = (value - self.loc) / self.scale, self.concentration
        is_zero = k.abs() < 1e-12
        safe = k.masked_fill(is_zero, 1.0)
        return (-z).where(is_zero, -(safe * z).log1p() / safe)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return self.log_survival_function(value) * (1 + self.concentration) - self.scale.log()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return -self.log_survival_function(value).expm1()

    def log_cdf(self, value: Any) -> Any:
        """Return logarithms of the probabilities of values that are not larger."""
        return (-self.log_survival_function(value).exp()).log1p()

    def _quantile(self, probability: Any) -> Any:
        k, log_survival = self.concentration, (-probability).log1p()
        is_zero = k.abs() < 1e-12
        safe = k.masked_fill(is_zero, 1.0)
        return self.loc + self.scale * (-log_survival).where(is_zero, (-safe * log_survival).expm1() / safe)

    def entropy(self) -> Any:
        return self.scale.log() + self.concentration + 1
