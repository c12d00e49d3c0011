"""Distributions over k choices, as numbers, as one-hot vectors, and as counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.size import Size

from . import constraints
from .discrete import Binomial, _ByOdds
from .distribution import Distribution

_CHOICES: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Categorical(_ByOdds):
    """Distributions over the numbers below k, with probabilities or log probabilities along the last dimension."""

    arg_constraints = _CHOICES
    has_enumerate_support = True
    _is_binary = False

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = logits if probs is None else probs
        if given.ndim < 1:
            raise ValueError(f"`{'logits' if probs is None else 'probs'}` parameter must be at least one-dimensional.")
        if probs is None:
            self.__dict__["logits"] = self._param = given - given.logsumexp(-1, keepdim=True)
        else:
            self.__dict__["probs"] = self._param = given / given.sum(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Any:
        return function("full")(self._batch_shape, math.nan, dtype=self._param.dtype, device=self._param.device)

    variance = mean

    @property
    def mode(self) -> Any:
        return self._param.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = function("multinomial")(rows, Size(sample_shape).numel(), True)
            return drawn.mT.reshape(shape)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        index = value.long().unsqueeze(-1)
        shape = np.broadcast_shapes(tuple(index.shape[:-1]), tuple(self._batch_shape))
        return self.logits.expand((*shape, self._num_events)).gather(-1, index.expand((*shape, 1))).squeeze(-1)

    def entropy(self) -> Any:
        smallest = -3.4e38 if self._param.dtype.itemsize >= 4 else -6e4
        return -(self.logits.clamp(min=smallest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        values = function("arange")(self._num_events, device=self._param.device)
        values = values.view((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values


class _Vectors(Distribution):
    """Vectors with an element for each choice of a categorical distribution."""

    arg_constraints = _CHOICES

    def __init__(self, categorical: Categorical, validate_args: bool | None) -> None:
        self._categorical = categorical
        super().__init__(categorical._batch_shape, (categorical._num_events,), validate_args)

    @property
    def probs(self) -> Any:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """Log probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._categorical.param_shape


class OneHotCategorical(_Vectors):
    """Distributions over vectors of one 1 and otherwise 0."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(Categorical(probs, logits), validate_args)

    @property
    def mean(self) -> Any:
        return self.probs

    @property
    def mode(self) -> Any:
        return self._one_hot(self.probs.argmax(-1))

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def _one_hot(self, index: Any) -> Any:
        return function("one_hot")(index, self._event_shape[0]).to(self._categorical._param.dtype)

    def sample(self, sample_shape: Any = ()) -> Any:
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        return self._one_hot(self._categorical.enumerate_support(expand))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same with the gradient of the probabilities: the straight-through estimator."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Any:
        samples = self.sample(sample_shape)
        return samples + (self.probs - self.probs.detach())


class Multinomial(_Vectors):
    """How often each of k choices was made in ``total_count`` trials."""

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        super().__init__(Categorical(probs, logits), validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        chosen = self._categorical.sample((self.total_count, *Size(sample_shape)))
        counts = function("one_hot")(chosen, shape[-1]).sum(0)
        return counts.to(self._categorical._param.dtype)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        kept = self.logits.masked_fill((value == 0) & (self.logits == -math.inf), 0)
        return ways + (kept * value).sum(-1)

    def entropy(self) -> Any:
        n = self.total_count
        counts = function("arange")(1, n + 1, dtype=self.probs.dtype, device=self.probs.device)
        counts = counts.view((-1, *[1] * (len(self._batch_shape) + 1)))
        weight = Binomial(n, probs=self.probs).log_prob(counts).exp()
        expected = (weight * (counts + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + expected
