"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence

from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn import init
from telegrad.nn.parameter import Parameter, new_parameter
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError

from .module import Module

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _as_tuple(size: int | Sequence[int]) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last dimensions, then scaled by ``weight`` and shifted by ``bias``."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _as_tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            made = new_parameter(*self.normalized_shape, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weights to one and biases to zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        own = self._parameters
        if type(self) is LayerNorm and "weight" in own and "bias" in own:  # as in ``Linear``
            return F.layer_norm(input, self.normalized_shape, own["weight"], own["bias"], self.eps)
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Root mean square 1 over the last dimensions, then scaled by ``weight``."""

    weight: Parameter | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True,
        device: DeviceLike = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _as_tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        made = new_parameter(*self.normalized_shape, device=device, dtype=dtype) if elementwise_affine else None
        self.register_parameter("weight", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to one."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Mean 0 and variance 1 over groups of channels, then scaled and shifted per channel."""

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: DeviceLike = None,
        dtype: DType | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ArgumentError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, new_parameter(num_channels, device=device, dtype=dtype) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weights to one and biases to zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        sizes = f"{self.num_groups}, {self.num_channels}"
        return f"{sizes}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class LocalResponseNorm(Module):
    """input / (k + alpha * mean of squares over ``size`` neighbouring channels) ** beta"""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """``LocalResponseNorm`` of images, by its name in Torch."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
