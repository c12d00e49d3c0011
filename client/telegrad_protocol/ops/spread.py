"""Contracts of norms, variances and standard deviations."""

from __future__ import annotations

from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .contract import Scalar, op, pointwise_meta
from .reduce import check_differentiable, check_nonempty, reduced


def check_converted(name: str, input: Meta, dtype: DType | None) -> None:
    """Refuse to take a norm of whole numbers, or in a type that is not as wide as the input's or of another kind."""
    check_differentiable(name, input.dtype, input)
    if dtype is not None and (
        not dtype.is_differentiable or input.dtype.is_complex != dtype.is_complex
        or dtype.itemsize < input.dtype.itemsize
    ):  # fmt: skip
        raise DTypeError(f"{name}: dtype={dtype.name} is not a wider type of the same kind as that of {input}")


@op
def norm(
    input: Meta, p: Scalar | None = 2, dim: int | Size | None = None, keepdim: bool = False, *,
    dtype: DType | None = None,
) -> Meta:  # fmt: skip
    """Compute sum(|input| ** p) ** (1 / p); for p = inf or -inf the largest or smallest magnitude."""
    check_converted("norm", input, dtype)
    if isinstance(p, (complex, bool)):
        raise ArgumentError(f"norm: the order must be a real number, not {p}")
    if p is not None and (p < 0 or p == float("inf")):
        check_nonempty("norm", input, dim)
    return input.like(reduced("norm", input, dim, keepdim), dtype=(dtype or input.dtype).to_real())


@op(name="norm.named")
def norm_named(
    input: Meta, p: str, dim: int | Size | None = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Meta:  # fmt: skip
    """Compute the Frobenius norm, ``fro``, or the nuclear norm of matrices, ``nuc``: the sum of singular values."""
    if p not in ("fro", "nuc"):
        raise ArgumentError(f"norm: expected a number, 'fro' or 'nuc' for p, got {p!r}")
    count = input.ndim if dim is None else 1 if isinstance(dim, int) else len(dim)
    if p == "nuc" and count != 2:
        raise ShapeError(f"norm: the nuclear norm is of matrices in two dimensions, got {input} and dim={dim}")
    check_converted("norm", input, dtype)
    return input.like(reduced("norm", input, dim, keepdim), dtype=(dtype or input.dtype).to_real())


@op(out=False)
def dist(input: Meta, other: Meta, p: Scalar = 2) -> Meta:
    """Compute the p-norm of input - other."""
    from .pointwise import sub

    difference = pointwise_meta(sub, (input, other, 1))
    check_differentiable("dist", difference.dtype, difference)
    return difference.like((), dtype=difference.dtype.to_real())


def _spread(
    name: str, input: Meta, dim: int | Size | None, keepdim: bool, correction: Scalar | None = None
) -> Meta:  # fmt: skip
    check_differentiable(name, input.dtype, input)
    if isinstance(correction, complex):
        raise DTypeError(f"{name}: correction must be a real number, got {correction}")
    return input.like(reduced(name, input, dim, keepdim), dtype=input.dtype.to_real())


def _spread_and_mean(
    name: str, input: Meta, dim: int | Size | None, keepdim: bool, correction: Scalar | None = None
) -> tuple[Meta, Meta]:  # fmt: skip
    spread = _spread(name, input, dim, keepdim, correction)
    return spread, spread.like(dtype=input.dtype)


@op
def var(input: Meta, dim: int | Size | None = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Meta:
    """Compute the variance: the sum of squared deviations over n - correction, with a correction of 1 by default."""
    return _spread("var", input, dim, keepdim, correction)


@op(name="var.unbiased", out=False)
def var_unbiased(input: Meta, unbiased: bool) -> Meta:
    """Compute the variance of all elements, with correction 1 if ``unbiased``, else 0."""
    return _spread("var", input, None, False)


@op(name="var.dim")
def var_dim(input: Meta, dim: int | Size | None, unbiased: bool = True, keepdim: bool = False) -> Meta:
    """Compute the variance over dimensions, with correction 1 if ``unbiased``, else 0."""
    return _spread("var", input, dim, keepdim)


@op
def std(input: Meta, dim: int | Size | None = None, *, correction: Scalar | None = None, keepdim: bool = False) -> Meta:
    """Compute the standard deviation: the square root of the variance, with a correction of 1 by default."""
    return _spread("std", input, dim, keepdim, correction)


@op(name="std.unbiased", out=False)
def std_unbiased(input: Meta, unbiased: bool) -> Meta:
    """Compute the standard deviation of all elements, with correction 1 if ``unbiased``, else 0."""
    return _spread("std", input, None, False)


@op(name="std.dim")
def std_dim(input: Meta, dim: int | Size | None, unbiased: bool = True, keepdim: bool = False) -> Meta:
    """Compute the standard deviation over dimensions, with correction 1 if ``unbiased``, else 0."""
    return _spread("std", input, dim, keepdim)


@op(out_rules=("copied",), method=False, returns=("var", "mean"))
def var_mean(
    input: Meta, dim: int | Size | None = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """Compute the variance and the mean, with a correction of 1 by default."""
    return _spread_and_mean("var_mean", input, dim, keepdim, correction)


@op(name="var_mean.unbiased", out=False, method=False, returns=("var", "mean"))
def var_mean_unbiased(input: Meta, unbiased: bool) -> tuple[Meta, Meta]:
    """Compute the variance and the mean of all elements, with correction 1 if ``unbiased``, else 0."""
    return _spread_and_mean("var_mean", input, None, False)


@op(name="var_mean.dim", out=False, method=False, returns=("var", "mean"))
def var_mean_dim(
    input: Meta, dim: int | Size | None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """Compute the variance and the mean over dimensions, with correction 1 if ``unbiased``, else 0."""
    return _spread_and_mean("var_mean", input, dim, keepdim)


@op(out_rules=("copied",), method=False, returns=("std", "mean"))
def std_mean(
    input: Meta, dim: int | Size | None = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """Compute the standard deviation and the mean, with a correction of 1 by default."""
    return _spread_and_mean("std_mean", input, dim, keepdim, correction)


@op(name="std_mean.unbiased", out=False, method=False, returns=("std", "mean"))
def std_mean_unbiased(input: Meta, unbiased: bool) -> tuple[Meta, Meta]:
    """Compute the standard deviation and the mean of all elements, with correction 1 if ``unbiased``, else 0."""
    return _spread_and_mean("std_mean", input, None, False)


@op(name="std_mean.dim", out=False, method=False, returns=("std", "mean"))
def std_mean_dim(
    input: Meta, dim: int | Size | None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Meta, Meta]:  # fmt: skip
    """Compute the standard deviation and the mean over dimensions, with correction 1 if ``unbiased``, else 0."""
    return _spread_and_mean("std_mean", input, dim, keepdim)
