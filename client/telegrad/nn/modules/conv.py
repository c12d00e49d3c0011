"""Convolution layers and their transposes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, cast

from telegrad._session.devices import DeviceLike
from telegrad._tensor.number_checks import is_integer
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn import init
from telegrad.nn._functional.windows import Numbers, spread
from telegrad.nn._lazy import LazyModuleMixin
from telegrad.nn.parameter import Parameter, UninitializedParameter, new_parameter
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.ops.layers.convolution import same_padding

from .module import Module

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d", "LazyConv2d",
    "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip


_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Base of convolutions: their settings, a weight and a bias, which start uniform within 1 / sqrt(fan in)."""

    _dims: int
    _transposed: bool = False

    weight: Parameter
    bias: Parameter | None

    def _set_up(
        self, in_channels: int, out_channels: int, kernel_size: Numbers, stride: Numbers, padding: Numbers | str,
        dilation: Numbers, output_padding: Numbers, groups: int, bias: bool, padding_mode: str, device: DeviceLike,
        dtype: DType | None,
    ) -> None:  # fmt: skip
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels), ("groups", groups)):
            if not is_integer(count):
                raise ArgumentTypeError(f"{name} must be an integer, not {count!r}")
        if groups <= 0:
            raise ArgumentError("groups must be a positive integer")
        if in_channels % groups or out_channels % groups:
            which = "in_channels" if in_channels % groups else "out_channels"
            raise ArgumentError(f"{which} must be divisible by groups")
        if padding_mode not in _PADDING_MODES:
            raise ArgumentError(f"padding_mode must be one of {_PADDING_MODES}, but got padding_mode={padding_mode!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = spread("kernel_size", kernel_size, self._dims)
        self.stride = spread("stride", stride, self._dims)
        self.dilation = spread("dilation", dilation, self._dims)
        self.output_padding = spread("output_padding", output_padding, self._dims)
        self.transposed, self.padding_mode = self._transposed, padding_mode
        self.padding = padding if isinstance(padding, str) else spread("padding", padding, self._dims)
        self._reversed_padding_repeated_twice = self._padding_around()
        rows, columns = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        self.weight = new_parameter(rows, columns // groups, *self.kernel_size, device=device, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_channels, device=device, dtype=dtype) if bias else None)
        self.reset_parameters()

    def _padding_around(self) -> tuple[int, ...]:
        """Return the padding as ``functional.pad`` takes it: before and after, the last dimension first."""
        if isinstance(self.padding, str):
            name = type(self).__name__
            before, after = same_padding(name, self.padding, self.kernel_size, self.stride, self.dilation)
        else:
            before = after = self.padding
        return tuple(n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair)

    def reset_parameters(self) -> None:
        """Give the parameters their initial values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
        if self.bias is not None and fan_in:
            bound = 1 / math.sqrt(fan_in)
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        plain = (0,) * self._dims
        if self.padding != plain:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self._dims:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != plain:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _Conv(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Numbers, stride: Numbers = 1,
        padding: Numbers | str = 0, dilation: Numbers = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._set_up(
            in_channels, out_channels, kernel_size, stride, padding, dilation, 0, groups, bias, padding_mode, device,
            dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve with another weight and bias, by the layer's settings."""
        convolve = getattr(F, f"conv{self._dims}d")
        padding: tuple[int, ...] | str = self.padding
        if self.padding_mode != "zeros":
            around = self._reversed_padding_repeated_twice
            input, padding = F.pad(input, around, mode=self.padding_mode), (0,) * self._dims
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)  # type: ignore[no-any-return]


class Conv1d(_Conv):
    """A kernel over sequences: (n, c, l) -> (n, out_channels, l')."""

    _dims = 1


class Conv2d(_Conv):
    """A kernel over images: (n, c, h, w) -> (n, out_channels, h', w')."""

    _dims = 2


class Conv3d(_Conv):
    """A kernel over volumes: (n, c, d, h, w) -> (n, out_channels, d', h', w')."""

    _dims = 3


class _ConvTransposeNd(_ConvNd):
    _transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Numbers, stride: Numbers = 1, padding: Numbers = 0,
        output_padding: Numbers = 0, groups: int = 1, bias: bool = True, dilation: Numbers = 1,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_mode != "zeros":
            raise ArgumentError(f"Only 'zeros' padding mode is supported for {type(self).__name__}")
        self._set_up(
            in_channels, out_channels, kernel_size, stride, padding, dilation, output_padding, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        rest = self.output_padding if output_size is None else self._output_padding_for(input, tuple(output_size))
        convolve = getattr(F, f"conv_transpose{self._dims}d")
        return convolve(  # type: ignore[no-any-return]
            input, self.weight, self.bias, self.stride, self.padding, rest, self.groups, self.dilation
        )

    def _output_padding_for(self, input: Tensor, output_size: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output padding that gives a result of this size."""
        wanted = output_size[-self._dims :]
        if len(output_size) not in (self._dims, input.ndim):
            raise ArgumentError(f"output_size must have {self._dims} or {input.ndim} numbers, got {list(output_size)}")
        output_padding = []
        padding = spread("padding", cast(Numbers, self.padding), self._dims)
        numbers = zip(self.kernel_size, self.stride, padding, self.dilation, strict=True)
        for n, asked, (k, s, p, d) in zip(input.shape[-self._dims :], wanted, numbers, strict=True):
            least = (n - 1) * s - 2 * p + d * (k - 1) + 1
            if not least <= asked < least + s:
                bounds = f"[{least}, {least + s - 1}]"
                raise ArgumentError(f"requested an output size of {list(wanted)}, but {asked} must be in {bounds}")
            output_padding.append(asked - least)
        return tuple(output_padding)


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of a convolution over sequences."""

    _dims = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of a convolution over images."""

    _dims = 2


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of a convolution over volumes."""

    _dims = 3


class _ConvTransposeMixin(_ConvTransposeNd):
    """The former base of transposed convolutions, which older packages still name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        text = "`_ConvTransposeMixin` is a deprecated internal class. Please consider using public APIs."
        warnings.warn(text, FutureWarning, stacklevel=2)
        super().__init__(*args, **kwargs)


class _LazyConv(LazyModuleMixin, _ConvNd):
    """A convolution that takes the number of input channels from its first input."""

    def _become_lazy(self, out_channels: int, bias: bool, device: DeviceLike, dtype: DType | None) -> None:
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Give the parameters their initial values, once they have a shape."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: object, **kwargs: object) -> None:
        """Give the parameters their shapes."""
        if self.has_uninitialized_params():
            if input.ndim not in (self._dims + 1, self._dims + 2):
                raise ArgumentError(
                    f"Expected {self._dims + 1}D (unbatched) or {self._dims + 2}D (batched) input to "
                    f"{type(self).__name__}, but got input of size: {input.shape}"
                )
            self.in_channels = input.shape[-self._dims - 1]
            if self.in_channels % self.groups:
                raise ArgumentError("in_channels must be divisible by groups")
            pair = (self.out_channels, self.in_channels)
            rows, columns = reversed(pair) if self._transposed else pair
            size = (rows, columns // self.groups, *self.kernel_size)
            self.weight.materialize(size)  # type: ignore[attr-defined]
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))  # type: ignore[attr-defined]
            self.reset_parameters()
        if self.in_channels == 0:  # the state was loaded
            self.in_channels = self.weight.shape[0] if self._transposed else self.weight.shape[1] * self.groups


class _LazyConvForward(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Numbers, stride: Numbers = 1, padding: Numbers | str = 0,
        dilation: Numbers = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._become_lazy(out_channels, bias, device, dtype)


class _LazyConvTransposed(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Numbers, stride: Numbers = 1, padding: Numbers = 0,
        output_padding: Numbers = 0, groups: int = 1, bias: bool = True, dilation: Numbers = 1,
        padding_mode: str = "zeros", device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._become_lazy(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConvForward, Conv1d):
    """``Conv1d`` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvForward, Conv2d):
    """``Conv2d`` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvForward, Conv3d):
    """``Conv3d`` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTransposed, ConvTranspose1d):
    """``ConvTranspose1d`` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTransposed, ConvTranspose2d):
    """``ConvTranspose2d`` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTransposed, ConvTranspose3d):
    """``ConvTranspose3d`` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose3d
