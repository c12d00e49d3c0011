"""Contracts of random numbers. They are drawn from the session's generator of the device, as ``manual_seed`` set it."""

from __future__ import annotations

from typing import Any

from telegrad_protocol.dtypes import FLOAT, DType, bool_, int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, broadcast_shapes
from telegrad_protocol.meta import Device, Meta

from .contract import Scalar, op
from .creation import integer_range, largest_of, like, new

_DRAWN: dict[str, Any] = {"out": False, "differentiable": False, "random": True}
_DRAWN_INTO = _DRAWN | {"out_rules": ("copied",)}
_DIGITS = {"float16": 11, "float32": 24, "float64": 53}
"""Bits of the floating-point types of which ``randperm`` gives exact integers only."""
_MOST_CATEGORIES = 1 << 24
"""Of ``multinomial``, as in PyTorch."""


def _floating(name: str, meta: Meta, also_complex: bool = False) -> Meta:
    if meta.dtype.category != FLOAT and not (also_complex and meta.dtype.is_complex):
        raise DTypeError(f"{name}: not defined for {meta.dtype.name}")
    return meta


@op(method=False, **_DRAWN_INTO)
def rand(*size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of numbers evenly distributed in [0, 1)."""
    return _floating("rand", new("rand", size, dtype, device), also_complex=True)


@op(method=False, **_DRAWN_INTO)
def randn(*size: int, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of numbers of the standard normal distribution."""
    return _floating("randn", new("randn", size, dtype, device), also_complex=True)


def _check_range(name: str, low: int, high: int) -> None:
    if low >= high:
        raise ArgumentError(f"{name}: low must be less than high, got {low} and {high}")


def _randint(low: int, high: int, size: Size, dtype: DType | None, device: Device | None) -> Meta:
    _check_drawn("randint", dtype or int64, low, high)
    return new("randint", size, dtype or int64, device)


def _holding(name: str, dtype: DType) -> DType:
    if dtype.is_complex:
        raise DTypeError(f"{name}: not defined for {dtype.name}")
    return dtype


def _check_drawn(name: str, dtype: DType, low: int, to: int) -> None:
    """Refuse a range of integers that is empty, or that a type does not hold."""
    _check_range(name, low, to)
    _holding(name, dtype)
    smallest, largest = (0, 1) if dtype is bool_ else integer_range(dtype) if dtype.category < FLOAT else _reach(dtype)
    for bound, number in (("from", low), ("to - 1", to - 1)):
        if not smallest <= number <= largest:
            raise ArgumentError(f"{name}: {bound} is out of bounds for {dtype.name}, got {number}")


def _reach(dtype: DType) -> tuple[float, float]:
    return -largest_of(dtype), largest_of(dtype)


@op(method=False, **_DRAWN_INTO)
def randint(high: int, size: Size, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of integers evenly distributed in [0, high)."""
    return _randint(0, high, size, dtype, device)


@op(name="randint.low", method=False, **_DRAWN_INTO)
def randint_low(low: int, high: int, size: Size, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a tensor of integers evenly distributed in [low, high)."""
    return _randint(low, high, size, dtype, device)


@op(method=False, **_DRAWN_INTO)
def randperm(n: int, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a vector of the integers from 0 to n - 1 in random order."""
    kind = _holding("randperm", dtype or int64)
    if kind is bool_:
        raise DTypeError("randperm: not implemented for bool")
    most = integer_range(kind)[1] + 1 if kind.category < FLOAT else (1 << _DIGITS.get(kind.name, 63)) + 1
    if n > most:
        raise ArgumentError(f"randperm: n cannot be greater than {most} for {kind.name}, got {n}")
    return new("randperm", (n,), kind, device)


@op(method=False, **_DRAWN)
def rand_like(input: Meta, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make numbers evenly distributed in [0, 1), in the shape and layout of ``input``."""
    return _floating("rand_like", like(input, dtype, device), also_complex=True)


@op(method=False, **_DRAWN)
def randn_like(input: Meta, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make numbers of the standard normal distribution, in the shape and layout of ``input``."""
    return _floating("randn_like", like(input, dtype, device), also_complex=True)


@op(method=False, **_DRAWN)
def randint_like(input: Meta, high: int, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make integers evenly distributed in [0, high), in the shape and layout of ``input``."""
    _check_drawn("randint_like", dtype or input.dtype, 0, high)
    return like(input, dtype, device)


@op(name="randint_like.low", method=False, **_DRAWN)
def randint_like_low(
    input: Meta, low: int, high: int, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make integers evenly distributed in [low, high), in the shape and layout of ``input``."""
    _check_drawn("randint_like", dtype or input.dtype, low, high)
    return like(input, dtype, device)


def _check_std(name: str, std: Scalar) -> None:
    if isinstance(std, complex):
        raise DTypeError(f"{name}: std must be a real number, got {std}")
    if not std >= 0:
        raise ArgumentError(f"{name}: normal expects std >= 0.0, but found std {std}")


@op(name="normal.size", method=False, **_DRAWN_INTO)
def normal_size(
    mean: float, std: float, size: Size, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Draw numbers of the normal distribution with one mean and one standard deviation."""
    _check_std("normal", std)
    return _floating("normal", new("normal", size, dtype, device))


@op(name="normal.Tensor", method=False, out_rules=("copied",), random=True)
def normal_tensor(mean: Meta, std: Meta | Scalar = 1.0) -> Meta:
    """Draw numbers of normal distributions with a mean per element, and with a ``std`` for all or per element."""
    if isinstance(std, Meta):
        return _normal(mean, std)
    _check_std("normal", std)
    return _floating("normal", mean.like())


@op(name="normal.std", method=False, out_rules=("copied",), random=True)
def normal_std(mean: float, std: Meta) -> Meta:
    """Draw numbers of normal distributions with one mean and a standard deviation per element."""
    return _floating("normal", std.like())


def _normal(mean: Meta, std: Meta) -> Meta:
    _floating("normal", std)
    return _floating("normal", mean.like(broadcast_shapes("normal", mean.shape, std.shape)))


@op(name="bernoulli", random=True, out_rules=("copied",))
def bernoulli(input: Meta) -> Meta:
    """Draw 1 with the probability that ``input`` holds, else 0."""
    return _floating("bernoulli", input.like())


@op(name="bernoulli.p", random=True, out=False)
def bernoulli_p(input: Meta, p: float) -> Meta:
    """Draw 1 with probability ``p``, else 0, in the shape of ``input``."""
    check_probability("bernoulli", p)
    _holding("bernoulli", input.dtype)
    return input.like()


def check_probability(name: str, p: float) -> None:
    """Refuse what is not a probability."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{name}: p must be in [0, 1], got {p}")


@op(mutates="input", out=False, random=True)
def bernoulli_(input: Meta, p: float = 0.5) -> Meta:
    """Overwrite every element with 1 with probability ``p``, else with 0."""
    check_probability("bernoulli_", p)
    _holding("bernoulli_", input.dtype)
    return input


@op(name="bernoulli_.Tensor", mutates="input", no_grad=("p",), out=False, random=True)
def bernoulli_tensor_(input: Meta, p: Meta) -> Meta:
    """Overwrite every element with 1 with the probability that ``p`` holds, else with 0."""
    _floating("bernoulli_", p)
    _holding("bernoulli_", input.dtype)
    if broadcast_shapes("bernoulli_", input.shape, p.shape) != input.shape:
        raise ShapeError(f"bernoulli_: {p} does not broadcast to {input}")
    return input


@op(mutates="input", out=False, random=True)
def uniform_(input: Meta, a: float = 0.0, b: float = 1.0) -> Meta:
    """Overwrite every element with a number evenly distributed in [a, b)."""
    if not a <= b:
        raise ArgumentError(f"uniform_: uniform_ expects to return a [from, to) range, but found from={a:g} > to={b:g}")
    return _floating("uniform_", input, also_complex=True)


@op(mutates="input", out=False, random=True)
def normal_(input: Meta, mean: float = 0.0, std: float = 1.0) -> Meta:
    """Overwrite every element with a number of the normal distribution."""
    _check_std("normal_", std)
    return _floating("normal_", input, also_complex=True)


@op(mutates="input", out=False, random=True)
def exponential_(input: Meta, lambd: float = 1.0) -> Meta:
    """Overwrite every element with a number of the exponential distribution of rate ``lambd``."""
    if not lambd > 0:
        raise ArgumentError(f"exponential_: exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    return _floating("exponential_", input)


@op(mutates="input", out=False, random=True)
def cauchy_(input: Meta, median: float = 0.0, sigma: float = 1.0) -> Meta:
    """Overwrite every element with a number of the Cauchy distribution around ``median``, ``sigma`` wide."""
    if not sigma > 0:
        raise ArgumentError(f"cauchy_: cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    return _floating("cauchy_", input)


@op(mutates="input", out=False, random=True)
def log_normal_(input: Meta, mean: float = 1.0, std: float = 2.0) -> Meta:
    """Overwrite every element with a number whose logarithm is normally distributed with ``mean`` and ``std``."""
    if not std > 0:
        raise ArgumentError(f"log_normal_: log_normal_ expects std > 0.0, but found std={std:g}")
    return _floating("log_normal_", input)


@op(mutates="input", out=False, random=True)
def geometric_(input: Meta, p: float) -> Meta:
    """Overwrite every element with how many trials it takes until the first success of probability ``p``."""
    if not 0 < p < 1:
        raise ArgumentError(f"geometric_: geometric_ expects p to be in (0, 1), but got p={p:g}")
    if input.dtype.is_complex or input.dtype.category == 0:
        raise DTypeError(f"geometric_: not defined for {input.dtype.name}")
    return input


@op(mutates="state", out=False, method=False, differentiable=False)
def _exchange_generator_(state: Meta, device: str) -> Meta:
    """Exchange the state of the session's generator of a device with ``state``, the 16 bytes of another one."""
    if state.dtype.name != "uint8" or state.shape != (16,) or state.device.type != "cpu":
        raise DTypeError(f"_exchange_generator_: expected 16 bytes on the CPU, not {state} on {state.device}")
    return state


@op(mutates="input", out=False, random=True)
def random_(input: Meta) -> Meta:
    """Overwrite every element with an integer from 0 to the largest that the type holds exactly."""
    _holding("random_", input.dtype)
    return input


@op(name="random_.to", mutates="input", out=False, random=True)
def random_to_(input: Meta, to: int) -> Meta:
    """Overwrite every element with an integer in [0, to)."""
    _check_drawn("random_", input.dtype, 0, to)
    return input


@op(name="random_.range", mutates="input", out=False, random=True)
def random_range_(input: Meta, low: int, to: int) -> Meta:
    """Overwrite every element with an integer in [low, to); PyTorch's name of ``low`` is a keyword of Python."""
    _check_drawn("random_", input.dtype, low, to)
    return input


@op(out_rules=("copied",), differentiable=False, random=True)
def multinomial(input: Meta, num_samples: int, replacement: bool = False) -> Meta:
    """Draw indices by the weights in every row, with or without replacement."""
    _floating("multinomial", input)
    if not 1 <= input.ndim <= 2:
        raise ShapeError(f"multinomial: prob_dist must be 1 or 2 dim, got {input}")
    if num_samples <= 0:
        raise ArgumentError(f"multinomial: cannot sample n_sample <= 0 samples, got {num_samples}")
    if input.shape[-1] > _MOST_CATEGORIES:
        raise ArgumentError(f"multinomial: cannot draw from {input}: number of categories cannot exceed 2^24")
    if not replacement and num_samples > input.shape[-1]:
        raise ArgumentError(
            "multinomial: cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
            f"{num_samples} of {input}"
        )
    return input.like((*input.shape[:-1], num_samples), int64)


@op(random=True, out_rules=("copied",), method=False)
def poisson(input: Meta) -> Meta:
    """Draw numbers of Poisson distributions with the rates that ``input`` holds."""
    return _floating("poisson", like(input, None, None))
