"""Conversions between the parameters of distributions."""

from __future__ import annotations

from typing import Any

from telegrad._functions.composites import broadcast_tensors
from telegrad._functions.creation import tensor as new_tensor
from telegrad._ops.functions import function
from telegrad._session.grad_mode import enable_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import get_default_dtype
from telegrad_protocol.errors import ArgumentTypeError

euler_constant = 0.57721566490153286060

EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}


def _limit(limits: dict[str, float], value: Any) -> float:
    limit = limits.get(value.dtype.name)
    if limit is None:
        raise ArgumentTypeError(f"expected floating-point numbers, not {value.dtype.name}")
    return limit


def eps_of(value: Any) -> float:
    """Return the distance from 1 to the next larger number of a tensor's type."""
    return _limit(EPSILONS, value)


def tiny_of(value: Any) -> float:
    """Return the smallest normal number of a tensor's type."""
    return _limit(SMALLEST, value)


def as_like(value: Any, like: Any) -> Any:
    """Return a number or tensor as a tensor of the type and on the device of another."""
    return value if isinstance(value, Tensor) else new_tensor(value, dtype=like.dtype, device=like.device)


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Return numbers and tensors as tensors of one shape; numbers take the type of the tensors."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    for value in values:
        if not isinstance(value, (Tensor, int, float)):
            raise ArgumentTypeError(
                f"Input arguments must all be instances of Number, or Tensor, not {type(value).__name__}"
            )
    if tensors:
        made = [as_like(value, tensors[0]) for value in values]
    else:
        made = [new_tensor(float(value), dtype=get_default_dtype()) for value in values]
    return tuple(broadcast_tensors(*made))


def draws(kind: str, shape: Any, like: Any) -> Any:
    """Return numbers of ``rand`` or ``randn`` in the type and on the device of another tensor."""
    return function(kind)(tuple(shape), dtype=like.dtype, device=like.device)


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    """Return standard normal numbers; distributions outside of this package import it."""
    return function("randn")(tuple(shape), dtype=dtype, device=device)


def uniform_open(shape: Any, like: Any) -> Any:
    """Return uniform numbers between 0 and 1, without both."""
    return draws("rand", shape, like).clamp(tiny_of(like), 1 - eps_of(like) / 2)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Return probabilities of unnormalised log probabilities, or of log odds if binary."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def inside_unit_interval(y: Any) -> Any:
    """Return numbers between 0 and 1 kept off both by what their type can tell apart from them."""
    return y.clamp(tiny_of(y), 1 - eps_of(y))


def clipped_sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), at least the smallest normal number of the type and at most 1 less its epsilon."""
    return inside_unit_interval(x.sigmoid())


def clamp_probs(probs: Any) -> Any:
    """Return probabilities kept away from 0 and 1."""
    eps = eps_of(probs)
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Return log probabilities of probabilities, or log odds if binary."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def xlogy(x: Any, y: Any) -> Any:
    """Return x·log(y), 0 where x is 0."""
    return function("xlogy")(x, y)


def sum_rightmost(value: Any, dims: int) -> Any:
    """Sum over the last ``dims`` dimensions."""
    return value.sum(tuple(range(-dims, 0))) if dims else value


_sum_rightmost = sum_rightmost


class lazy_property:
    """A property that is computed once, when it is first asked for, with gradients also within ``no_grad``."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = instance.__dict__[self.wrapped.__name__] = self.wrapped(instance)
        return value


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """Return the elements on and below a diagonal of matrices, row by row."""
    n = mat.shape[-1]
    places = [i * n + j for i in range(n) for j in range(n) if j <= i + diag]
    return mat.flatten(-2)[..., places]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """Return matrices that have these elements on and below a diagonal."""
    n = int((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    places = [i * n + j for i in range(n) for j in range(n) if j <= i + diag]
    zeros = function("zeros")((*vec.shape[:-1], n * n), dtype=vec.dtype, device=vec.device)
    index = new_tensor(places, device=vec.device)
    return zeros.index_copy(-1, index, vec).unflatten(-1, (n, n))
