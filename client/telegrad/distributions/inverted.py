"""Distributions whose samples are transforms of uniform ones, drawn by their inverse cumulative probability."""

from __future__ import annotations

import math
from typing import Any

from telegrad._ops.functions import function

from . import constraints
from .composed import TransformedDistribution
from .location_scale import Uniform, _Inverted, _LocationScale
from .transforms import AffineTransform, ExpTransform, PowerTransform
from .utils import broadcast_all, eps_of, euler_constant, tiny_of


def _inside_unit(like: Any) -> Uniform:
    """Return uniform distributions of the shape of a parameter, over the unit interval without its ends."""
    ones = function("ones_like")(like)
    return Uniform(ones * tiny_of(like), ones * (1 - eps_of(like)), validate_args=False)


class Gumbel(_LocationScale, _Inverted, TransformedDistribution):
    """Gumbel distributions: of the largest of many samples, with a location and a scale."""

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        ones = function("ones_like")(self.scale)
        log = ExpTransform().inv
        steps = [log, AffineTransform(0, -ones), log, AffineTransform(self.loc, -self.scale)]
        TransformedDistribution.__init__(self, _inside_unit(self.loc), steps, validate_args)

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * euler_constant

    @property
    def stddev(self) -> Any:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Any:
        return self.stddev**2

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        return (-((self.loc - value) / self.scale).exp()).exp()

    def _quantile(self, probability: Any) -> Any:
        return self.loc - self.scale * (-probability.log()).log()

    def entropy(self) -> Any:
        return self.scale.log() + 1 + euler_constant


class Kumaraswamy(_Inverted, TransformedDistribution):
    """Kumaraswamy distributions over the unit interval."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        ones = function("ones_like")(self.concentration0)
        steps = [
            PowerTransform(self.concentration0.reciprocal()), AffineTransform(1.0, -ones),
            PowerTransform(self.concentration1.reciprocal()),
        ]  # fmt: skip
        TransformedDistribution.__init__(self, _inside_unit(self.concentration1), steps, validate_args)

    def _moment(self, n: int) -> Any:
        a, b = self.concentration1, self.concentration0
        power = 1 + n / a
        return (b.log() + power.lgamma() + b.lgamma() - (power + b).lgamma()).exp()

    @property
    def mean(self) -> Any:
        return self._moment(1)

    @property
    def mode(self) -> Any:
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & ((a > 1) | (b > 1))
        return (((a - 1) / (a * b - 1)) ** a.reciprocal()).where(inside, a * math.nan)

    @property
    def variance(self) -> Any:
        return self._moment(2) - self.mean**2

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return a.log() + b.log() + (a - 1) * value.log() + (b - 1) * (-(value**a)).log1p()

    def cdf(self, value: Any) -> Any:
        return 1 - (1 - value**self.concentration1) ** self.concentration0

    def _quantile(self, probability: Any) -> Any:
        inner = -((-probability).log1p() / self.concentration0).expm1()
        return inner ** self.concentration1.reciprocal()

    def entropy(self) -> Any:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
