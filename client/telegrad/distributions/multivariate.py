"""Normal vectors, and random matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._session.catching.prompt_errors import check_where_caught
from telegrad_protocol.errors import ArgumentError

from . import constraints
from .distribution import Distribution, ExponentialFamily
from .gammas import Beta, Chi2
from .utils import broadcast_all, draws, lazy_property


def half_log_det(lower: Any) -> Any:
    """Return half of the logarithm of the determinant of a matrix with this Cholesky factor."""
    return lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def solve_lower(lower: Any, right: Any) -> Any:
    """Return the solution of a lower triangular system."""
    return function("linalg_solve_triangular")(lower, right, upper=False)


def _batch_mv(bmat: Any, bvec: Any) -> Any:
    """Return products of matrices and vectors, whose batches broadcast; programs' own distributions import it."""
    return (bmat @ bvec.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(bL: Any, bx: Any) -> Any:
    """Return the squared distances of vectors from 0 by covariances with these Cholesky factors; batches broadcast."""
    batch = np.broadcast_shapes(tuple(bL.shape[:-2]), tuple(bx.shape[:-1]))
    lower, right = bL.expand((*batch, *bL.shape[-2:])), bx.expand((*batch, bx.shape[-1]))
    return solve_lower(lower, right.unsqueeze(-1)).squeeze(-1).pow(2).sum(-1)


def inverse_cholesky(precision: Any) -> Any:
    """Return the Cholesky factor of the inverse of a positive definite matrix."""
    eye = function("eye")(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    turned = function("linalg_cholesky")(precision.flip((-2, -1))).flip((-2, -1)).mT
    return solve_lower(turned, eye)


_precision_to_scale_tril = inverse_cholesky


class MultivariateNormal(Distribution):
    """Normal vectors, by covariance, precision, or a Cholesky factor of the covariance."""

    arg_constraints = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                    "scale_tril": scale_tril}  # fmt: skip
        given = [(name, value) for name, value in matrices.items() if value is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = np.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        self.loc = loc.expand((*batch, loc.shape[-1]))
        self.__dict__[name] = matrix = matrix.expand((*batch, *matrix.shape[-2:]))
        super().__init__(batch, loc.shape[-1:], validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        else:
            is_covariance = name == "covariance_matrix"
            factor = function("linalg_cholesky") if is_covariance else inverse_cholesky
            self._unbroadcasted_scale_tril = factor(matrix)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return function("cholesky_inverse")(self._unbroadcasted_scale_tril)

    @property
    def mean(self) -> Any:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Any:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Any:
        noise = draws("randn", self._extended_shape(sample_shape), self.loc)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        lower = self._unbroadcasted_scale_tril
        distance = _batch_mahalanobis(lower, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - half_log_det(lower)

    def entropy(self) -> Any:
        return 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + half_log_det(self._unbroadcasted_scale_tril)


class Wishart(ExponentialFamily):
    """Wishart distributions of positive definite matrices; samples by Bartlett's decomposition."""

    arg_constraints = {
        "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(0),
    }  # fmt: skip
    support = constraints.positive_definite
    has_rsample = True

    def __init__(
        self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        matrices = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                    "scale_tril": scale_tril}  # fmt: skip
        given = [(name, value) for name, value in matrices.items() if value is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given
        batch, n = matrix.shape[:-2], matrix.shape[-1]
        if isinstance(df, (int, float)):
            df = function("full")(batch, float(df), dtype=matrix.dtype, device=matrix.device)
        batch = np.broadcast_shapes(tuple(batch), tuple(df.shape))
        self.df, matrix = df.expand(batch), matrix.expand((*batch, n, n))
        self.__dict__[name] = matrix
        super().__init__(batch, (n, n), validate_args)
        if matrix.device.type != "meta":
            check_where_caught(self._check_df)

    def _check_df(self) -> None:
        least = self._event_shape[0] - 1
        if bool((self.df <= least).any()):
            raise ArgumentError(f"Value of df={self.df} expected to be greater than ndim - 1 = {least}.")

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the scale matrix."""
        if "covariance_matrix" in self.__dict__:
            return function("linalg_cholesky")(self.covariance_matrix)
        return inverse_cholesky(self.precision_matrix)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The scale matrix."""
        return self.scale_tril @ self.scale_tril.mT

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the scale matrix."""
        return function("cholesky_inverse")(self.scale_tril)

    @property
    def mean(self) -> Any:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self._event_shape[0] - 1
        return factor.masked_fill(factor <= 0, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Any:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df[..., None, None] * (v**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _steps(self) -> Any:
        return function("arange")(self._event_shape[0], dtype=self.df.dtype, device=self.df.device)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return self._bartlett_sampling(sample_shape)

    def _bartlett_sampling(self, sample_shape: Any = ()) -> Any:
        """Return matrices drawn by Bartlett's decomposition, under the name by which packages draw them."""
        shape = self._extended_shape(sample_shape)
        chi = Chi2(self.df.unsqueeze(-1) - self._steps()).rsample(sample_shape).sqrt()
        factor = self.scale_tril @ (draws("randn", shape, self.df).tril(-1) + chi.diag_embed())
        return factor @ factor.mT

    def _multigamma(self, value: Any) -> Any:
        n = self._event_shape[0]
        return n * (n - 1) / 4 * math.log(math.pi) + (value.unsqueeze(-1) - self._steps() / 2).lgamma().sum(-1)

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n, nu = self._event_shape[0], self.df
        trace = (self.precision_matrix @ value).diagonal(dim1=-2, dim2=-1).sum(-1)
        norm = nu * (n * math.log(2) / 2 + half_log_det(self.scale_tril)) + self._multigamma(nu / 2)
        return (nu - n - 1) / 2 * function("linalg_slogdet")(value)[1] - trace / 2 - norm

    def entropy(self) -> Any:
        n, nu = self._event_shape[0], self.df
        digammas = (nu.unsqueeze(-1) / 2 - self._steps() / 2).digamma().sum(-1)
        scale = (n + 1) * (n * math.log(2) / 2 + half_log_det(self.scale_tril))
        return scale + self._multigamma(nu / 2) - (nu - n - 1) / 2 * digammas + nu * n / 2


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices (Lewandowski, Kurowicka, Joe 2009); samples by the onion method."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)
        steps = function("arange")(dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        start = self.concentration.unsqueeze(-1) + (dim - 2) / 2
        self._beta = Beta((steps / 2 + 0.5).expand((*self._batch_shape, dim - 1)), start - steps / 2)

    def sample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        y = self._beta.sample(sample_shape).unsqueeze(-1)
        noise = draws("randn", shape, self.concentration)[..., 1:, :].tril(0)
        direction = noise / function("linalg_norm")(noise, dim=-1, keepdim=True)
        zeros = function("zeros")((*shape[:-2], 1, shape[-1]), dtype=y.dtype, device=y.device)
        lower = function("cat")([zeros, y.sqrt() * direction], -2)
        diagonal = (1 - (lower**2).sum(-1)).clamp(min=1e-38).sqrt()
        return lower.tril(-1) + diagonal.diag_embed()

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        n, eta = self.dim, self.concentration
        order = function("arange")(2, n + 1, dtype=eta.dtype, device=eta.device)
        powers = 2 * (eta - 1).unsqueeze(-1) + n - order
        density = (powers * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1)
        alpha = eta + 0.5 * (n - 1)
        steps = function("arange")(1, n, dtype=eta.dtype, device=eta.device)
        above = (alpha.unsqueeze(-1) - steps / 2).lgamma().sum(-1) + (n - 1) * n / 4 * math.log(math.pi)
        return density - (above - alpha.lgamma() * (n - 1))
