"""Normal vectors whose covariance is a narrow matrix times its transpose, plus a diagonal.

Nothing here makes a matrix of the size of the covariance unless it is asked for: of n numbers and a factor of m columns
all else takes memory for n * m. The formulas are the matrix determinant lemma and the Woodbury identity.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from telegrad._ops.functions import function

from . import constraints
from .distribution import Distribution
from .multivariate import half_log_det, solve_lower
from .utils import draws, lazy_property


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with the covariance W Wᵀ + D of a narrow matrix and a diagonal."""

    arg_constraints = {
        "loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }  # fmt: skip
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        n = loc.shape[-1]
        if cov_factor.ndim < 2 or cov_factor.shape[-2] != n or tuple(cov_diag.shape[-1:]) != (n,):
            raise ValueError(f"cov_factor must be a batch of matrices of {n} x m, and cov_diag of vectors of {n}")
        batch = np.broadcast_shapes(*[tuple(s) for s in (loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])])
        self.loc = loc.expand((*batch, n))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, n))
        super().__init__(batch, (n,), validate_args)
        capacitance = cov_factor.mT @ (cov_factor / cov_diag.unsqueeze(-1)) + _eye_like(cov_factor)
        lower = function("linalg_cholesky")(capacitance)
        self._capacitance_tril = lower.expand((*batch, *lower.shape[-2:]))

    @property
    def mean(self) -> Any:
        return self.loc

    mode = mean

    @lazy_property
    def variance(self) -> Any:
        """The diagonal of the covariance."""
        return self.cov_factor.pow(2).sum(-1) + self.cov_diag

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance."""
        return function("linalg_cholesky")(self.covariance_matrix)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance as a whole matrix, which is made when somebody asks for it."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance as a whole matrix, by the Woodbury identity."""
        taken = self._whitened_factor()
        return self.cov_diag.reciprocal().diag_embed() - taken.mT @ taken

    def _whitened_factor(self) -> Any:
        """Return the matrix A of m rows by which the precision is D⁻¹ - Aᵀ A."""
        return solve_lower(self._capacitance_tril, (self.cov_factor / self.cov_diag.unsqueeze(-1)).mT)

    def _half_log_det(self) -> Any:
        """Return half of the logarithm of the determinant of the covariance."""
        return half_log_det(self._capacitance_tril) + 0.5 * self.cov_diag.log().sum(-1)

    def _squared_distance(self, away: Any) -> Any:
        """Return the squared distances of vectors from 0, as the covariance measures them."""
        scaled = away / self.cov_diag
        along = (self.cov_factor.mT @ scaled.unsqueeze(-1)).squeeze(-1)
        batch = np.broadcast_shapes(tuple(self._batch_shape), tuple(along.shape[:-1]))
        lower = self._capacitance_tril.expand((*batch, *self._capacitance_tril.shape[-2:]))
        taken = solve_lower(lower, along.expand((*batch, along.shape[-1])).unsqueeze(-1)).squeeze(-1)
        return (away * scaled).sum(-1) - taken.pow(2).sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Any:
        shape = self._extended_shape(sample_shape)
        along = draws("randn", (*shape[:-1], self.cov_factor.shape[-1]), self.loc)
        across = draws("randn", shape, self.loc)
        return self.loc + (self.cov_factor @ along.unsqueeze(-1)).squeeze(-1) + self.cov_diag.sqrt() * across

    def log_prob(self, value: Any) -> Any:
        self._validate_sample(value)
        distance = self._squared_distance(value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._half_log_det()

    def entropy(self) -> Any:
        return 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()


def _eye_like(factor: Any) -> Any:
    return function("eye")(factor.shape[-1], dtype=factor.dtype, device=factor.device)
