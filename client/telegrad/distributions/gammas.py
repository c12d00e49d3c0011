"""Gamma distributions and those made of them. Samples need no wait: enough candidates are drawn at once."""

from __future__ import annotations

import math
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad_protocol.dtypes import float64

from . import constraints
from .distribution import Distribution, ExponentialFamily
from .utils import broadcast_all, draws, tiny_of, uniform_open, xlogy

_CANDIDATES = 16
"""Of Marsaglia and Tsang's candidates at least 95 % are accepted: that none of so many is happens in 1 of 10^20."""


def standard_gamma(concentration: Any) -> Any:
    """Return a sample for each element, whose gradient is that of the inverse cumulative probability."""
    with no_grad():
        value = _draw_gamma(concentration.detach())
    if not concentration.requires_grad:
        return value
    return value + (concentration - concentration.detach()) * _implicit_gradient(value, concentration.detach())


def _draw_gamma(alpha: Any) -> Any:
    """Marsaglia and Tsang, A simple method for generating gamma variables, 2000; shapes below 1 are boosted."""
    boosted = alpha.where(alpha >= 1, alpha + 1)
    d = boosted - 1 / 3
    noise = draws("randn", (_CANDIDATES, *alpha.shape), alpha)
    cube = (1 + noise / (9 * d).sqrt()) ** 3
    accepted = uniform_open(noise.shape, alpha).log() < noise**2 / 2 + d * (1 - cube + cube.clamp(min=1e-30).log())
    first = (accepted & (cube > 0)).to(alpha.dtype).argmax(0, True)
    value = d * cube.gather(0, first).squeeze(0)
    boost = uniform_open(alpha.shape, alpha).log() / alpha
    return (value * boost.where(alpha < 1, boost * 0).exp()).clamp(min=tiny_of(alpha))


def _implicit_gradient(value: Any, alpha: Any) -> Any:
    """Return the derivative of a sample by its shape: that of the cumulative probability over the density."""
    with no_grad():
        x, a = value.to(float64), alpha.to(float64)
        h = 1e-4 * a.clamp(max=1.0) + 1e-5 * a
        lower = function("special_gammainc")(a + h, x) - function("special_gammainc")(a - h, x)
        upper = function("special_gammaincc")(a - h, x) - function("special_gammaincc")(a + h, x)
        slope = lower.where(x < a, upper) / (2 * h)
        log_density = (a - 1) * x.log() - x - a.lgamma()
        return (-slope / log_density.exp()).to(value.dtype)


class Gamma(ExponentialFamily):
    """Gamma distributions."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate**2

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        value = standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return value.clamp(min=tiny_of(value))

    def log_prob(self, value: Any) -> Any:
        value = self._like(value)
        self._validate_sample(value)
        a, b = self.concentration, self.rate
        return xlogy(a, b) + xlogy(a - 1, value) - b * value - a.lgamma()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return function("special_gammainc")(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """Chi-squared distributions."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self.concentration * 2


class Dirichlet(ExponentialFamily):
    """Dirichlet distributions."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        less = (self.concentration - 1).clamp(min=0.0)
        mode = less / less.sum(-1, True)
        flat = (self.concentration < 1).all(-1, True)
        top = function("one_hot")(self.concentration.argmax(-1), self._event_shape[0]).to(mode.dtype)
        return top.where(flat, mode)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        parts = standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        return parts / parts.sum(-1, True)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Any:
        a, k, total = self.concentration, self.concentration.shape[-1], self.concentration.sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (k - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)


class Beta(ExponentialFamily):
    """Beta distributions."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        both = broadcast_all(concentration1, concentration0)
        self._dirichlet = Dirichlet(function("stack")(both, -1))
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> Any:
        """How strongly samples are drawn to 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Any:
        """How strongly samples are drawn to 0."""
        return self._dirichlet.concentration[..., 1]

    def _like(self, value: Any) -> Any:
        return self._dirichlet._like(value)

    @property
    def mean(self) -> Any:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Any:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Any) -> Any:
        value = self._like(value)
        self._validate_sample(value)
        return self._dirichlet.log_prob(function("stack")([value, 1 - value], -1))

    def entropy(self) -> Any:
        return self._dirichlet.entropy()


class StudentT(Distribution):
    """Student's t distributions."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        finite = self.scale**2 * self.df / (self.df - 2)
        return finite.masked_fill(self.df <= 2, math.inf).masked_fill(self.df <= 1, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Any:
        noise = draws("randn", self._extended_shape(sample_shape), self.df)
        return self.loc + self.scale * noise * (self._chi2.rsample(sample_shape) / self.df).rsqrt()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        y, half = (value - self.loc) / self.scale, 0.5 * (self.df + 1)
        scale = self.scale.log() + 0.5 * (self.df.log() + math.log(math.pi))
        return half.lgamma() - (0.5 * self.df).lgamma() - scale - half * (y**2 / self.df).log1p()

    def entropy(self) -> Any:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        return self.scale.log() + more * (more.digamma() - half.digamma()) + 0.5 * self.df.log() + log_beta


class FisherSnedecor(Distribution):
    """Fisher and Snedecor's F distributions."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, math.nan)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return mode.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> Any:
        a, b = self.df1, self.df2
        return (2 * b**2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4))).masked_fill(b <= 4, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Any:
        above, below = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        return (above / below).clamp(min=tiny_of(above))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        start = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return start + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()
