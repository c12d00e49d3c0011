"""``torch.nn.quantized`` and its like: layers of quantised models, by name; those for models in float do their work.

Packages name the layers to ask with ``isinstance``. None is ever made here, since telegrad does not quantise.
"""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad.nn import Identity, Module

from .private.quantization import ObserverBase


class FloatFunctional(Module):
    """Operations of a model in float as methods of a module, so that what comes out of them might be observed."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError("FloatFunctional is not intended to use the forward. Please use the underlying operation")

    def _observed(self, name: str, *args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = self.activation_post_process(function(name)(*args, **kwargs))
        return result

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + y."""
        return self._observed("add", x, y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """Return x + y for a number y."""
        return function("add")(x, y)  # type: ignore[no-any-return]

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x * y."""
        return self._observed("mul", x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """Return x * y for a number y."""
        return function("mul")(x, y)  # type: ignore[no-any-return]

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """Return tensors one after the other."""
        return self._observed("cat", x, dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + y where it is positive, else 0."""
        return self._observed("relu", function("add")(x, y))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the product of matrices."""
        return self._observed("matmul", x, y)


class FXFloatFunctional(FloatFunctional):
    """The same, without anything that observes."""


class QuantizedLayer(ObserverBase):
    """A layer of a quantised model, for ``isinstance``."""


_LAYERS = (
    "BNReLU2d BNReLU3d BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d "
    "ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d ConvTranspose1d ConvTranspose2d ConvTranspose3d "
    "DeQuantize Dropout ELU Embedding EmbeddingBag GRU GRUCell GroupNorm Hardswish InstanceNorm1d InstanceNorm2d "
    "InstanceNorm3d LSTM LSTMCell LayerNorm LeakyReLU Linear LinearBn1d LinearLeakyReLU LinearReLU LinearTanh "
    "MaxPool2d MultiheadAttention PReLU QFunctional Quantize RNNCell ReLU6 Sigmoid Softmax"
)
globals().update(
    {
        name: type(name, (QuantizedLayer,), {"__doc__": QuantizedLayer.__doc__, "__module__": __name__})
        for name in _LAYERS.split()
    }
)
