"""Activation functions as layers."""

from __future__ import annotations

import warnings
from importlib import import_module
from inspect import Parameter as _Argument
from inspect import Signature
from typing import Any

from telegrad._ops.operands.asserted_errors import AssertedArgumentError
from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn import init
from telegrad.nn.parameter import Parameter, new_parameter
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError

from .module import Module

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "MultiheadAttention":  # PyTorch has it in this file
        return import_module(".attention", __package__).MultiheadAttention
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_SELF = _Argument("self", _Argument.POSITIONAL_OR_KEYWORD)


class _Activation(Module):
    """A function of ``functional`` with settings that are the arguments of its layer, in order."""

    _function: str = ""
    _settings: dict[str, object] = {}
    _required: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        """Give a class that names a function a constructor with the signature that its settings say."""
        super().__init_subclass__()
        if "_function" not in cls.__dict__:
            return
        if not cls._required and not cls._settings:
            return
        names = [*((name, _Argument.empty) for name in cls._required), *cls._settings.items()]
        listed = [_SELF, *(_Argument(name, _Argument.POSITIONAL_OR_KEYWORD, default=value) for name, value in names)]
        signature = Signature(listed)

        def __init__(self: Module, *args: Any, **kwargs: Any) -> None:
            Module.__init__(self)
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            for name, value in list(given.arguments.items())[1:]:
                setattr(self, name, value)

        __init__.__signature__ = signature  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign]

    def forward(self, input: Tensor) -> Tensor:
        settings = {name: getattr(self, name) for name in (*self._required, *self._settings)}
        return getattr(F, self._function)(input, **settings)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return "inplace=True" if getattr(self, "inplace", False) else ""


class ReLU(_Activation):
    """max(input, 0)"""

    _function, _settings = "relu", {"inplace": False}

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class SiLU(_Activation):
    """input * sigmoid(input)"""

    _function, _settings = "silu", {"inplace": False}


class Mish(_Activation):
    """input * tanh(softplus(input))"""

    _function, _settings = "mish", {"inplace": False}


class SELU(_Activation):
    """The self-normalizing ELU."""

    _function, _settings = "selu", {"inplace": False}


class Hardsigmoid(_Activation):
    """relu6(input + 3) / 6"""

    _function, _settings = "hardsigmoid", {"inplace": False}

    def extra_repr(self) -> str:
        return ""


class Hardswish(_Activation):
    """input * relu6(input + 3) / 6"""

    _function, _settings = "hardswish", {"inplace": False}

    def extra_repr(self) -> str:
        return ""


class GELU(_Activation):
    """input times the normal distribution function; ``approximate="tanh"`` for the approximation by tanh."""

    _function, _settings = "gelu", {"approximate": "none"}

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class LeakyReLU(_Activation):
    """input where it is positive, else negative_slope * input"""

    _function, _settings = "leaky_relu", {"negative_slope": 0.01, "inplace": False}

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(_Activation):
    """input where it is positive, else alpha * (exp(input) - 1)"""

    _function, _settings = "elu", {"alpha": 1.0, "inplace": False}

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(_Activation):
    """input where it is positive, else alpha * (exp(input / alpha) - 1)"""

    _function, _settings = "celu", {"alpha": 1.0, "inplace": False}

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class Hardtanh(Module):
    """input within limits; ``min_value`` and ``max_value`` are the limits' former names"""

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        for new, old in (("min_val", min_value), ("max_val", max_value)):
            if old is not None:
                name = f"{new}ue"
                warnings.warn(
                    f"keyword argument `{name}` is deprecated and rename to `{new}`", FutureWarning, stacklevel=2
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertedArgumentError(f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class ReLU6(Hardtanh):
    """min(max(input, 0), 6)"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Softplus(_Activation):
    """log(1 + exp(beta * input)) / beta"""

    _function, _settings = "softplus", {"beta": 1.0, "threshold": 20.0}

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Threshold(_Activation):
    """input where it is greater than ``threshold``, else ``value``"""

    _function, _required, _settings = "threshold", ("threshold", "value"), {"inplace": False}

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class Hardshrink(_Activation):
    """input where its magnitude exceeds ``lambd``, else 0"""

    _function, _settings = "hardshrink", {"lambd": 0.5}

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(_Activation):
    """input drawn towards 0 by ``lambd``"""

    _function, _settings = "softshrink", {"lambd": 0.5}

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Sigmoid(_Activation):
    """1 / (1 + exp(-input))"""

    _function = "sigmoid"


class Tanh(_Activation):
    """The hyperbolic tangent."""

    _function = "tanh"


class LogSigmoid(_Activation):
    """log(sigmoid(input))"""

    _function = "logsigmoid"


class Softsign(_Activation):
    """input / (1 + |input|)"""

    _function = "softsign"


class Tanhshrink(_Activation):
    """input - tanh(input)"""

    _function = "tanhshrink"


class Softmax(_Activation):
    """exp(input) divided by its sum over ``dim``."""

    _function, _settings = "softmax", {"dim": None}

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(_Activation):
    """The logarithm of ``Softmax``."""

    _function, _settings = "log_softmax", {"dim": None}

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(_Activation):
    """``Softmax`` of -input."""

    _function, _settings = "softmin", {"dim": None}

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GLU(_Activation):
    """The first half along ``dim``, times the sigmoid of the second."""

    _function, _settings = "glu", {"dim": -1}

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """``Softmax`` over the channels of (n, c, h, w) or (c, h, w)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ArgumentError(f"Softmax2d: expected input to be 3D or 4D, got {input._meta}")
        return F.softmax(input, -3)


class RReLU(Module):
    """input where it is positive, else times a random slope between limits; outside of training times their mean."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """input where it is positive, else weight * input; the weight is learned."""

    weight: Parameter

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: DeviceLike = None, dtype: DType | None = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = new_parameter(num_parameters, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Give the parameters their initial values."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
