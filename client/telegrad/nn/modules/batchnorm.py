"""Batch normalization, and what it has in common with instance normalization."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad.nn import init
from telegrad.nn._lazy import LazyModuleMixin
from telegrad.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter, new_parameter
from telegrad_protocol.dtypes import DType, int64
from telegrad_protocol.errors import ArgumentError

from .module import Module

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
    "SyncBatchNorm",
]  # fmt: skip


class _NormBase(Module):
    """The settings, parameters and running statistics of a normalization per channel."""

    _version = 2

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: DeviceLike = None, dtype: DType | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, new_parameter(num_features, device=device, dtype=dtype) if wanted else None)
        for name, fill in (("running_mean", "zeros"), ("running_var", "ones")):
            statistic = function(fill)(num_features, device=device, dtype=dtype) if track_running_stats else None
            self.register_buffer(name, statistic)
        count = function("zeros")((), device=device, dtype=int64) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the statistics of former batches."""
        if self.track_running_stats:
            self.running_mean.zero_()  # type: ignore[union-attr]
            self.running_var.fill_(1)  # type: ignore[union-attr]
            self.num_batches_tracked.zero_()  # type: ignore[union-attr]

    def reset_parameters(self) -> None:
        """Set weights to one and biases to zero, and forget the statistics of former batches."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Accept the state of layers of a time before batches were counted."""
        version, key = local_metadata.get("version"), f"{prefix}num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class _BatchNorm(_NormBase):
    """Mean 0 and variance 1 per channel over the batch, then scaled by ``weight`` and shifted by ``bias``.

    In training the running statistics move by ``momentum`` towards those of the batch; with ``momentum=None`` they are
    the mean over all batches. In evaluation they take the place of the batch's own.
    """

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        tracks = self.training and self.track_running_stats
        if tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                return self._with_cumulative_mean(input)
        mean, var = self.running_mean, self.running_var
        by_batch = self.training or (mean is None and var is None)
        if self.training and not self.track_running_stats:
            mean = var = None
        momentum = 0.0 if self.momentum is None else self.momentum
        return F.batch_norm(input, mean, var, self.weight, self.bias, by_batch, momentum, self.eps)

    def _with_cumulative_mean(self, input: Tensor) -> Tensor:
        """Normalize by the batch's statistics and let the running ones become the mean over all batches."""
        with no_grad():
            mean, var = function("zeros_like")(self.running_mean), function("zeros_like")(self.running_var)
            share = self.num_batches_tracked.to(mean.dtype).reciprocal_()  # type: ignore[union-attr]
        result = F.batch_norm(input, mean, var, self.weight, self.bias, True, 1.0, self.eps)
        with no_grad():
            self.running_mean.lerp_(mean, share)  # type: ignore[union-attr]
            self.running_var.lerp_(var, share)  # type: ignore[union-attr]
        return result


def check_dims(input: Tensor, *dims: int) -> None:
    if input.ndim not in dims:
        wanted = " or ".join(f"{dim}D" for dim in dims)
        raise ArgumentError(f"expected {wanted} input (got {input.ndim}D input)")


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (n, c) or (n, c, l)."""

    def _check_input_dim(self, input: Tensor) -> None:
        check_dims(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (n, c, h, w)."""

    def _check_input_dim(self, input: Tensor) -> None:
        check_dims(input, 4)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of (n, c, d, h, w)."""

    def _check_input_dim(self, input: Tensor) -> None:
        check_dims(input, 5)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the batches of all processes; a session is one process, so over its own batch."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, device: DeviceLike = None,
        dtype: DType | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ArgumentError(f"expected at least 2D input (got {input.ndim}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """Return the module with every batch normalization in it replaced by one of this class."""
        converted = module
        if isinstance(module, _BatchNorm):
            converted = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group, bias=module.bias is not None,
            )  # fmt: skip
            converted._parameters.update(module._parameters)
            converted._buffers.update(module._buffers)
            converted.training = module.training
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A normalization that takes the number of channels from its first input."""

    _channels_from_end: int = 0
    """The dimension of the channels counted from the end; 0 where it is the second from the front."""

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: DeviceLike = None, dtype: DType | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, UninitializedParameter(**place) if wanted else None)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**place)
            self.running_var = UninitializedBuffer(**place)
            self.num_batches_tracked = function("zeros")((), device=device, dtype=int64)

    def reset_parameters(self) -> None:
        """Give the parameters their initial values, once they have a shape."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Give parameters and statistics the size of the input's channels."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[-self._channels_from_end if self._channels_from_end else 1]
            own: tuple[Any, ...] = (self.weight, self.bias, self.running_mean, self.running_var)
            for tensor in own:
                if tensor is not None:
                    tensor.materialize((self.num_features,))
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """``BatchNorm1d`` that takes the number of channels from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """``BatchNorm2d`` that takes the number of channels from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """``BatchNorm3d`` that takes the number of channels from its first input."""

    cls_to_become = BatchNorm3d
