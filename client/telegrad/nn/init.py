"""Initial values of parameters: each function fills its tensor in place and returns it."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.overriding import handle_torch_function, has_torch_function_unary
from telegrad._session.grad_mode import no_grad
from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

_LINEAR = ("linear", *(f"conv{kind}{dims}d" for kind in ("", "_transpose") for dims in (1, 2, 3)), "sigmoid")
_GAINS: dict[str, float] = {**dict.fromkeys(_LINEAR, 1.0), "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance of activations across a nonlinearity; ``param`` is a leaky ReLU's slope."""
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ArgumentError(f"calculate_gain: negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    gain = _GAINS.get(nonlinearity)
    if gain is None:
        raise ArgumentError(f"calculate_gain: unsupported nonlinearity {nonlinearity!r}")
    return gain


def _in_place(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Fill leaves as well: nothing is recorded."""

    @wraps(fill)
    def run(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not tensor.requires_grad:
            fill(tensor, *args, **kwargs)
        else:
            with no_grad():
                fill(tensor, *args, **kwargs)
        return tensor

    return run


def _overridable(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Ask modes and classes with ``__torch_function__`` first, with all arguments by name, as PyTorch does."""
    signature = inspect.signature(fill)

    @wraps(fill)
    def run(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not has_torch_function_unary(tensor):
            return fill(tensor, *args, **kwargs)
        bound = signature.bind(tensor, *args, **kwargs)
        bound.apply_defaults()
        return handle_torch_function(run, (tensor,), **bound.arguments)

    return run


@_overridable
@_in_place
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform between ``a`` and ``b``."""
    return tensor.uniform_(a, b, generator=generator)


@_overridable
@_in_place
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normally distributed."""
    return tensor.normal_(mean, std, generator=generator)


@_in_place
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normally distributed, given that it is between ``a`` and ``b``: the inverse of the distribution function."""
    if mean < a - 2 * std or mean > b + 2 * std:
        note(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect."
        )
    low, high = (2 * _normal_cdf((limit - mean) / std) - 1 for limit in (a, b))
    tensor.uniform_(low, high, generator=generator).erfinv_().mul_(std * math.sqrt(2.0)).add_(mean)
    return tensor.clamp_(a, b)


def _normal_cdf(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


@_overridable
@_in_place
def constant_(tensor: Tensor, val: float) -> Tensor:
    """All ``val``."""
    return tensor.fill_(val)


@_in_place
def ones_(tensor: Tensor) -> Tensor:
    """All one."""
    return tensor.fill_(1.0)


@_in_place
def zeros_(tensor: Tensor) -> Tensor:
    """All zero."""
    return tensor.zero_()


@_in_place
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ArgumentError(f"eye_: Only tensors with 2 dimensions are supported, got {tensor._meta}")
    return tensor.copy_(function("eye")(*tensor.shape, device=tensor.device))


@_in_place
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The weight of a convolution that gives back as many channels as it can, group by group."""
    if tensor.ndim not in (3, 4, 5):
        raise ArgumentError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ArgumentError("dim 0 must be divisible by groups")
    outputs, center = tensor.shape[0] // groups, [size // 2 for size in tensor.shape[2:]]
    count = min(outputs, tensor.shape[1])
    tensor.zero_()
    middle = tensor[(slice(None), slice(None), *center)]
    for group in range(groups):
        middle[group * outputs : group * outputs + count, :count].diagonal().fill_(1)
    return tensor


@_in_place
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A. Saxe et al., Exact solutions to the nonlinear dynamics of learning (2013): a (semi-)orthogonal matrix."""
    if tensor.ndim < 2:
        raise ArgumentError("Only tensors with 2 or more dimensions are supported")
    if not tensor.numel():
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    drawn: Tensor = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
    q, r = function("linalg_qr")(drawn.t() if rows < columns else drawn)
    q = q * r.diagonal().sign()
    return tensor.copy_((q.t() if rows < columns else q).reshape(tensor.shape)).mul_(gain)


@_in_place
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normally distributed, with a share ``sparsity`` of every column zero (J. Martens, 2010)."""
    if tensor.ndim != 2:
        raise ArgumentError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    order = function("rand")((rows, columns), device=tensor.device, generator=generator).argsort(0)
    return tensor.normal_(0, std, generator=generator).scatter_(0, order[:zeros], 0)


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs and outputs each element of a weight is connected to."""
    if tensor.ndim < 2:
        raise ArgumentError(
            f"fan in and fan out can not be computed for a tensor with fewer than 2 dimensions, {tensor._meta}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """X. Glorot, Y. Bengio, Understanding the difficulty of training deep networks (2010), uniform."""
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """The same with a normal distribution."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode {mode!r} not supported, please use one of ('fan_in', 'fan_out')")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def _deviation(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


@_overridable
def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """K. He et al., Delving deep into rectifiers (2015), with a uniform distribution."""
    if not tensor.numel():
        note("Initializing zero-element tensors is a no-op")
        return tensor
    bound = math.sqrt(3.0) * _deviation(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """The same with a normal distribution."""
    if not tensor.numel():
        note("Initializing zero-element tensors is a no-op")
        return tensor
    return normal_(tensor, 0.0, _deviation(tensor, a, mode, nonlinearity), generator)


def _former(name: str) -> Callable[..., Tensor]:
    current = globals()[f"{name}_"]

    def run(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return current(*args, **kwargs)  # type: ignore[no-any-return]

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"The former name of ``{name}_``."
    return run


uniform, normal, constant, eye, dirac = (_former(n) for n in ("uniform", "normal", "constant", "eye", "dirac"))
xavier_uniform, xavier_normal = _former("xavier_uniform"), _former("xavier_normal")
kaiming_uniform, kaiming_normal = _former("kaiming_uniform"), _former("kaiming_normal")
orthogonal, sparse = _former("orthogonal"), _former("sparse")

# private names by which programs import these
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
