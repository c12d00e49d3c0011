"""Distributions made of others: reinterpreted, transformed, mixed."""

from __future__ import annotations

from typing import Any

from telegrad._session.grad_mode import no_grad
from telegrad._tensor.size import Size

from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .transforms import ComposeTransform, Transform
from .utils import sum_rightmost


class Independent(Distribution):
    """A distribution whose last batch dimensions count as one event."""

    def __init__(
        self, base_distribution: Any, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        if reinterpreted_batch_ndims > len(base_distribution.batch_shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(base_distribution.batch_shape)}"
            )
        shape = (*base_distribution.batch_shape, *base_distribution.event_shape)
        cut = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:], validate_args)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return not self.reinterpreted_batch_ndims and bool(self.base_dist.has_enumerate_support)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.independent(self.base_dist.support, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Any:
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """What a distribution's samples become by transforms."""

    base_dist: Any

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all([isinstance(one, Transform) for one in self.transforms]):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        whole = ComposeTransform(self.transforms)
        shape = Size((*base_distribution.batch_shape, *base_distribution.event_shape))
        if len(shape) < whole.domain.event_dim:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, but got {shape}."
            )
        grown = whole.inverse_shape(whole.forward_shape(shape))
        if tuple(grown) != tuple(shape):
            base_distribution = base_distribution.expand(grown[: len(grown) - len(base_distribution.event_shape)])
        more = whole.domain.event_dim - len(base_distribution.event_shape)
        self.base_dist = Independent(base_distribution, more) if more > 0 else base_distribution
        event_dim = max(
            whole.codomain.event_dim, len(base_distribution.event_shape) + whole.codomain.event_dim
            - whole.domain.event_dim,
        )  # fmt: skip
        made = tuple(whole.forward_shape(grown))
        cut = len(made) - event_dim
        super().__init__(made[:cut], made[cut:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        reshaped = ComposeTransform(self.transforms).inverse_shape((*new._batch_shape, *self._event_shape))
        new.base_dist = self.base_dist.expand(reshaped[: len(reshaped) - len(self.base_dist.event_shape)])
        return new

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return bool(self.base_dist.has_rsample)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        more = len(self._event_shape) - codomain.event_dim
        return constraints.independent(codomain, more) if more > 0 else codomain

    def _transformed(self, value: Any) -> Any:
        for transform in self.transforms:
            value = transform(value)
        return value

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        event_dim, total, y = len(self._event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform._inv_call(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(slope, event_dim - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))

    def _sign(self) -> Any:
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return sign

    def cdf(self, value: Any) -> Any:
        for transform in reversed(self.transforms):
            value = transform._inv_call(value)
        probability, sign = self.base_dist.cdf(value), self._sign()
        return probability if isinstance(sign, int) and sign == 1 else sign * (probability - 0.5) + 0.5

    def icdf(self, value: Any) -> Any:
        sign = self._sign()
        if not (isinstance(sign, int) and sign == 1):
            value = sign * (value - 0.5) + 0.5
        return self._transformed(self.base_dist.icdf(value))


class MixtureSameFamily(Distribution):
    """Mixtures: which of the last batch dimension's distributions a sample comes from is drawn first."""

    def __init__(self, mixture_distribution: Any, component_distribution: Any, validate_args: Any = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        batch = component_distribution.batch_shape[:-1]
        if mixture_distribution._num_events != component_distribution.batch_shape[-1]:
            raise ValueError(
                "`mixture_distribution` component does not equal to `component_distribution.batch_shape[-1]`"
            )
        self._mixture_distribution = mixture_distribution.expand(batch)
        self._component_distribution = component_distribution
        super().__init__(batch, component_distribution.event_shape, validate_args)

    @property
    def mixture_distribution(self) -> Any:
        """Which component a sample comes from."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The distributions that are mixed."""
        return self._component_distribution

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    def _weights(self) -> Any:
        return self._mixture_distribution.probs.reshape((*self._mixture_distribution.probs.shape, *self._ones()))

    def _ones(self) -> list[int]:
        return [1] * len(self._event_shape)

    def _dim(self) -> int:
        return -1 - len(self._event_shape)

    @property
    def mean(self) -> Any:
        return (self._weights() * self._component_distribution.mean).sum(self._dim())

    @property
    def variance(self) -> Any:
        weights, parts = self._weights(), self._component_distribution
        away = (parts.mean - self.mean.unsqueeze(self._dim())) ** 2
        return (weights * (parts.variance + away)).sum(self._dim())

    def sample(self, sample_shape: Any = ()) -> Any:
        with no_grad():
            chosen = self._mixture_distribution.sample(sample_shape)
            values = self._component_distribution.sample(sample_shape)
            index = chosen.reshape((*chosen.shape, 1, *self._ones()))
            index = index.expand((*chosen.shape, 1, *self._event_shape))
            return values.gather(self._dim(), index).squeeze(self._dim())

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        parts = self._component_distribution.log_prob(value.unsqueeze(self._dim()))
        return (parts + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def cdf(self, value: Any) -> Any:
        parts = self._component_distribution.cdf(value.unsqueeze(self._dim()))
        return (parts * self._mixture_distribution.probs).sum(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
