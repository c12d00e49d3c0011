"""Transforms of whole events, between vectors and matrices, and those made of several along one dimension."""

from __future__ import annotations

import math
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.size import Size

from . import constraints
from .transforms import Transform, _Elementwise, _log_sigmoid
from .utils import clipped_sigmoid, eps_of, sum_rightmost, tiny_of, tril_matrix_to_vec, vec_to_tril_matrix


class IndependentTransform(Transform):
    """A function of elements as one of blocks of them."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """Another shape of each event."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape((*x.shape[: x.ndim - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y: Any) -> Any:
        return y.reshape((*y.shape[: y.ndim - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return Size((*shape[: len(shape) - len(self.in_shape)], *self.out_shape))

    def inverse_shape(self, shape: Any) -> Any:
        return Size((*shape[: len(shape) - len(self.out_shape)], *self.in_shape))


class CumulativeDistributionTransform(_Elementwise):
    """The cumulative probability of a distribution."""

    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution
        self.domain = distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)


class SoftmaxTransform(_Elementwise):
    """Unconstrained vectors to simplices by softmax, which loses a degree of freedom."""

    bijective = False
    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Any) -> Any:
        return x.softmax(-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()


class StickBreakingTransform(_Elementwise):
    """Unconstrained vectors to simplices of one more element, by breaking a stick."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _offset(self, x: Any) -> Any:
        n = x.shape[-1]
        return function("arange")(n, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Any) -> Any:
        z = clipped_sigmoid(x - self._offset(x))
        left = (1 - z).cumprod(-1)
        pad = function("ones_like")(z[..., :1])
        return function("cat")([z, pad], -1) * function("cat")([pad, left], -1)

    def _inverse(self, y: Any) -> Any:
        head = y[..., :-1]
        rest = (1 - head.cumsum(-1)).clamp(min=tiny_of(y))
        return head.log() - rest.log() + self._offset(head)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        shifted = x - self._offset(x)
        return (-shifted + _log_sigmoid(shifted) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(_Elementwise):
    """Matrices to lower triangles with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(LowerCholeskyTransform):
    """Matrices to positive definite ones."""

    codomain = constraints.positive_definite  # type: ignore[assignment]

    def _call(self, x: Any) -> Any:
        lower = super()._call(x)
        return lower @ lower.mT

    def _inverse(self, y: Any) -> Any:
        return super()._inverse(function("linalg_cholesky")(y))


class CorrCholeskyTransform(_Elementwise):
    """Unconstrained vectors to Cholesky factors of correlation matrices."""

    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _call(self, x: Any) -> Any:
        x = x.tanh()
        eps = eps_of(x)
        r = vec_to_tril_matrix(x.clamp(-1 + eps, 1 - eps), -1)
        rest = (1 - r**2).sqrt().cumprod(-1)
        eye = function("eye")(r.shape[-1], dtype=r.dtype, device=r.device)
        ones = function("ones_like")(rest[..., :1])
        return (r + eye) * function("cat")([ones, rest[..., :-1]], -1)

    def _inverse(self, y: Any) -> Any:
        left = 1 - (y * y).cumsum(-1)
        shifted = function("cat")([function("ones_like")(left[..., :1]), left[..., :-1]], -1)
        ratio = tril_matrix_to_vec(y, -1) / tril_matrix_to_vec(shifted, -1).sqrt()
        return (ratio.log1p() - (-ratio).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        left = 1 - (y * y).cumsum(-1)
        # The slope of row i, column j involves what columns 1 to j have left of the row's length.
        stick = 0.5 * tril_matrix_to_vec(left, -2).log().sum(-1) if y.shape[-1] > 2 else 0.0
        return stick + (-2 * (x + function("logaddexp")(function("zeros_like")(x), -2 * x) - math.log(2))).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Any) -> Any:
        n = shape[-1]
        return Size((*shape[:-2], n * (n - 1) // 2))


class CatTransform(Transform):
    """One transform for each part of a tensor along a dimension."""

    def __init__(self, tseq: Any, dim: int = 0, lengths: Any = None, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        self.bijective = all(part.bijective for part in self.transforms)
        self.domain = constraints.cat([part.domain for part in self.transforms], dim, self.lengths)
        self.codomain = constraints.cat([part.codomain for part in self.transforms], dim, self.lengths)

    @property
    def length(self) -> int:
        """How long the dimension is."""
        return sum(self.lengths)

    def _parts(self, value: Any) -> Any:
        return value.split(self.lengths, self.dim)

    def _joined(self, parts: Any) -> Any:
        return function("cat")(parts, self.dim)

    def _call(self, x: Any) -> Any:
        return self._joined([part(v) for part, v in zip(self.transforms, self._parts(x))])

    def _inverse(self, y: Any) -> Any:
        return self._joined([part._inv_call(v) for part, v in zip(self.transforms, self._parts(y))])

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        event_dim, logs = self.domain.event_dim, []
        for part, a, b in zip(self.transforms, self._parts(x), self._parts(y)):
            logs.append(sum_rightmost(part.log_abs_det_jacobian(a, b), event_dim - part.domain.event_dim))
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + event_dim
        return function("cat")(logs, dim) if dim < 0 else sum(logs)


class StackTransform(CatTransform):
    """One transform for each slice of a tensor along a dimension."""

    def __init__(self, tseq: Any, dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, None, cache_size)
        self.domain = constraints.stack([part.domain for part in self.transforms], dim)
        self.codomain = constraints.stack([part.codomain for part in self.transforms], dim)

    def _parts(self, value: Any) -> Any:
        return value.unbind(self.dim)

    def _joined(self, parts: Any) -> Any:
        return function("stack")(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        parts = zip(self.transforms, self._parts(x), self._parts(y))
        return self._joined([part.log_abs_det_jacobian(a, b) for part, a, b in parts])
