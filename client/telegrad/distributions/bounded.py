"""Distributions over the unit interval and the circle."""

from __future__ import annotations

import math
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad

from . import constraints
from .discrete import _ByOdds
from .distribution import Distribution
from .utils import broadcast_all, draws, uniform_open

_CANDIDATES = 40
"""Of von Mises candidates at least 65 % are accepted."""


class ContinuousBernoulli(_ByOdds):
    """Continuous Bernoulli distributions (Loaiza-Ganem and Cunningham 2019)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._lims = lims
        self._set_odds(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def _near(self) -> tuple[Any, Any]:
        """Return where probabilities are near a half, and probabilities that are not."""
        low, high = self._lims
        near = (self.probs > low) & (self.probs <= high)
        return near, self.probs.masked_fill(near, low)

    def _log_norm(self) -> Any:
        near, p = self._near()
        far = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        x = (self.probs - 0.5) ** 2
        return (math.log(2.0) + (4 / 3 + 104 / 45 * x) * x).where(near, far)

    @property
    def mean(self) -> Any:
        near, p = self._near()
        x = self.probs - 0.5
        return (0.5 + (1 / 3 + 16 / 45 * x**2) * x).where(near, p / (2 * p - 1) + 1 / ((-p).log1p() - p.log()))

    @property
    def variance(self) -> Any:
        near, p = self._near()
        x = (self.probs - 0.5) ** 2
        far = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return (1 / 12 - (1 / 15 - 128 / 945 * x) * x).where(near, far)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.icdf(uniform_open(self._extended_shape(sample_shape), self._param))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        bernoulli = value * self.logits - function("logaddexp")(self.logits * 0, self.logits)
        return bernoulli + self._log_norm()

    def cdf(self, value: Any) -> Any:
        self._validate_sample(value)
        near, p = self._near()
        far = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        inside = value.where(near, far)
        return inside.masked_fill(value <= 0, 0.0).masked_fill(value >= 1, 1.0)

    def icdf(self, value: Any) -> Any:
        near, p = self._near()
        far = ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return value.where(near, far)

    def entropy(self) -> Any:
        p = self.probs
        return self.mean * ((-p).log1p() - p.log()) - self._log_norm() - (-p).log1p()


class VonMises(Distribution):
    """Von Mises distributions over angles; samples by Best and Fisher, 1979."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Any:
        k = self.concentration
        return 1 - function("special_i1e")(k) / function("special_i0e")(k)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        k = self.concentration
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - function("special_i0e")(k).log()

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            k, shape = self.concentration, self._extended_shape(sample_shape)
            tau = 1 + (1 + 4 * k**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = ((1 + rho**2) / (2 * rho)).where(k > 1e-4, 1 / k.clamp(min=1e-12) + k)
            turn = (math.pi * draws("rand", (_CANDIDATES, *shape), k)).cos()
            f = (1 + r * turn) / (r + turn)
            c = k * (r - f)
            u = uniform_open(f.shape, k)
            accepted = (c * (2 - c) - u > 0) | ((c / u).log() + 1 - c >= 0)
            f = f.gather(0, accepted.to(k.dtype).argmax(0, True)).squeeze(0).clamp(-1, 1)
            angle = (draws("rand", shape, k) - 0.5).sign() * f.acos()
            return (angle + math.pi + self.loc) % (2 * math.pi) - math.pi
