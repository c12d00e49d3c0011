"""Distributions of counts and of choices."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from telegrad._functions.creation import tensor as new_tensor
from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad_protocol.errors import ArgumentError

from . import constraints
from .distribution import Distribution, ExponentialFamily
from .gammas import Gamma
from .utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    uniform_open,
    xlogy,
)  # fmt: skip

_BINARY: Any = {"probs": constraints.unit_interval, "logits": constraints.real}


def _drawn_on_host(kind: str, *parameters: Any) -> Any:
    """Return samples of one of NumPy's distributions: a round trip, with a seed of the session's generator."""
    seed = int(function("randint")(0, 2**31 - 1, (1,), device="cpu").item())
    arrays: list[np.ndarray[Any, Any]] = [
        parameter.detach().numpy(force=True).astype(np.float64) for parameter in parameters
    ]
    if kind == "binomial":
        arrays[0] = arrays[0].astype(np.int64)
    drawn = getattr(np.random.default_rng(seed), kind)(*arrays)
    return new_tensor(np.asarray(drawn, np.float64), dtype=parameters[-1].dtype, device=parameters[-1].device)


class _ByOdds(Distribution):
    """What has either ``probs`` or ``logits``, and computes the other when it is asked for."""

    _is_binary = True

    def _set_odds(self, probs: Any, logits: Any, *others: Any) -> tuple[Any, ...]:
        """Keep the one that is given, in the shape of all; return the others in that shape, and in its type."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name = "logits" if probs is None else "probs"
        *rest, value = broadcast_all(*others, logits if probs is None else probs)
        self.__dict__[name] = self._param = value
        return tuple([other.type_as(value) for other in rest])

    @lazy_property
    def logits(self) -> Any:
        """Log odds, or log probabilities of choices."""
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits, self._is_binary)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._param.shape


class Bernoulli(_ByOdds, ExponentialFamily):
    """Distributions over 0 and 1."""

    arg_constraints = _BINARY
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set_odds(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return (self.probs >= 0.5).to(self.probs.dtype).masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return function("bernoulli")(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return value * self.logits - function("softplus")(self.logits)

    def entropy(self) -> Any:
        return function("softplus")(self.logits) - self.probs * self.logits

    def enumerate_support(self, expand: bool = True) -> Any:
        values = function("arange")(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((2, *[1] * len(self._batch_shape)))
        return values.expand((2, *self._batch_shape)) if expand else values


class Geometric(_ByOdds):
    """Numbers of failures before the first success."""

    arg_constraints = _BINARY
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set_odds(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def _check_parameters(self, names: Collection[str] | None = None) -> None:
        super()._check_parameters(names)
        if "probs" in self.__dict__ and not bool((self.probs > 0).all()):
            raise ArgumentError("Geometric: expected parameter probs to be greater than 0, as successes are awaited")

    @property
    def mean(self) -> Any:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Any:
        return function("zeros_like")(self.probs)

    @property
    def variance(self) -> Any:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            noise = uniform_open(self._extended_shape(sample_shape), self.probs)
            return (noise.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return value * (-self.probs).log1p() + self.probs.log()

    def entropy(self) -> Any:
        return Bernoulli(logits=self.logits).entropy() / self.probs


class Binomial(_ByOdds):
    """Numbers of successes in ``total_count`` trials; samples are drawn on this machine, at a round trip."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, **_BINARY}
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._set_odds(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        return _drawn_on_host("binomial", self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n = self.total_count
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * self.logits - n * function("softplus")(self.logits)

    def entropy(self) -> Any:
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        count = int(self.total_count.max().item())
        if bool((self.total_count != count).any()):
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = function("arange")(1 + count, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values


class NegativeBinomial(_ByOdds):
    """Numbers of successes before ``total_count`` failures; samples are drawn on this machine, at a round trip."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }  # fmt: skip
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._set_odds(probs, logits, total_count)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            rate = Gamma(self.total_count, (-self.logits).exp()).sample(sample_shape)
        return _drawn_on_host("poisson", rate)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        log_sigmoid = function("logsigmoid")
        odds = self.total_count * log_sigmoid(-self.logits) + value * log_sigmoid(self.logits)
        return odds + (self.total_count + value).lgamma() - (1 + value).lgamma() - self.total_count.lgamma()


class Poisson(ExponentialFamily):
    """Poisson distributions; samples are drawn on this machine, at a round trip."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.rate

    variance = mean

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    def sample(self, sample_shape: Any = ()) -> Any:
        return _drawn_on_host("poisson", self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return xlogy(value, self.rate) - self.rate - (value + 1).lgamma()
