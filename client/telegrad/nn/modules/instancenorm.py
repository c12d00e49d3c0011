"""Instance normalization: every channel of every sample by itself."""

from __future__ import annotations

from telegrad._session.devices import DeviceLike
from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad.nn import functional as F
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError

from .batchnorm import _LazyNormBase, _NormBase, check_dims

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]  # fmt: skip


class _InstanceNorm(_NormBase):
    """Mean 0 and variance 1 per channel of every sample."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: DeviceLike = None, dtype: DType | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    _unbatched: int

    def _check_input_dim(self, input: Tensor) -> None:
        check_dims(input, self._unbatched, self._unbatched + 1)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.shape[-self._unbatched] != self.num_features:
            self._tell_of_features(input)
        if input.ndim == self._unbatched:
            return self._normalized(input.unsqueeze(0)).squeeze(0)
        return self._normalized(input)

    def _tell_of_features(self, input: Tensor) -> None:
        """Refuse another number of channels than there are weights for, and warn where there are none."""
        place = input.ndim - self._unbatched
        if self.affine:
            raise ArgumentError(
                f"expected input's size at dim={place} to match num_features ({self.num_features}), but got: "
                f"{input.shape[place]}."
            )
        note(
            f"input's size at dim={place} does not match num_features. You can silence this warning by not passing in "
            "num_features, which is not used because affine=False"
        )

    def _normalized(self, input: Tensor) -> Tensor:
        by_input = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        return F.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, by_input, momentum, self.eps
        )


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of (n, c, l) or (c, l)."""

    _unbatched = 2


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of (n, c, h, w) or (c, h, w)."""

    _unbatched = 3


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of (n, c, d, h, w) or (c, d, h, w)."""

    _unbatched = 4


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d):
    """``InstanceNorm1d`` that takes the number of channels from its first input."""

    cls_to_become, _channels_from_end = InstanceNorm1d, 2


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d):
    """``InstanceNorm2d`` that takes the number of channels from its first input."""

    cls_to_become, _channels_from_end = InstanceNorm2d, 3


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d):
    """``InstanceNorm3d`` that takes the number of channels from its first input."""

    cls_to_become, _channels_from_end = InstanceNorm3d, 4
