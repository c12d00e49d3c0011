"""What ``run_decompositions`` takes apart where it is given no table: PyTorch's core operators stay, as do others here.

An operator stays whole for whose arguments its function returns NotImplemented. So does ``reshape``: how tensors lie in
memory is not known, and therefore not whether it is a view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad._library.compiled import composed
from telegrad.ops import aten
from telegrad_protocol.memory_format import contiguous_format

_COMPOSED: Final = (
    "addcdiv", "addcmul", "celu", "deg2rad", "frac", "glu", "hardsigmoid", "hardswish", "huber_loss", "isneginf",
    "isposinf", "mish", "mse_loss", "rad2deg", "silu", "smooth_l1_loss", "softplus",
)  # fmt: skip


def core_table() -> dict[Any, Callable[..., Any]]:
    """Return functions for operators that are not among PyTorch's core ones, by overload."""
    return {**{getattr(aten, name).default: getattr(composed, name) for name in _COMPOSED}, **_OWN}


def _swapped(tensor: Any, first: int, second: int) -> Any:
    if not tensor.ndim:
        return NotImplemented
    dims = [*range(tensor.ndim)]
    dims[first], dims[second] = dims[second], dims[first]
    return aten.permute.default(tensor, dims)


def _t(tensor: Any) -> Any:
    return _swapped(tensor, 0, 1) if tensor.ndim == 2 else NotImplemented


def _linear(tensor: Any, weight: Any, bias: Any = None) -> Any:
    if tensor.ndim < 2 or weight.ndim != 2:
        return NotImplemented
    rows = tensor
    if tensor.ndim > 2:
        rows = aten.clone.default(tensor, memory_format=contiguous_format)
        rows = aten.view.default(rows, [math.prod(tensor.shape[:-1]), tensor.shape[-1]])
    turned = aten.permute.default(weight, [1, 0])
    made = aten.mm.default(rows, turned) if bias is None else aten.addmm.default(bias, rows, turned)
    return made if tensor.ndim == 2 else aten.view.default(made, [*tensor.shape[:-1], weight.shape[0]])


def _matmul(tensor: Any, other: Any) -> Any:
    if tensor.ndim == other.ndim == 2:
        return aten.mm.default(tensor, other)
    if tensor.ndim == other.ndim == 3 and tensor.shape[0] == other.shape[0]:
        return aten.bmm.default(tensor, other)
    return NotImplemented


def _lerp(tensor: Any, end: Any, weight: Any) -> Any:
    span = end - tensor
    return tensor + weight * span if abs(weight) < 0.5 else end - span * (1 - weight)


def _layer_norm(
    tensor: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enable: bool = True
) -> Any:  # fmt: skip
    return aten.native_layer_norm.default(tensor, shape, weight, bias, eps)[0]


def _pad(tensor: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    if mode != "constant":
        return NotImplemented
    return aten.constant_pad_nd.default(tensor, pad, 0 if value is None else value)


def _stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    dim = dim + tensors[0].ndim + 1 if dim < 0 else dim
    return aten.cat.default([aten.unsqueeze.default(tensor, dim) for tensor in tensors], dim)


def _unbind(tensor: Any, dim: int = 0) -> Any:
    return [aten.select.int(tensor, dim, place) for place in range(tensor.shape[dim])]


def _max_pool2d(
    tensor: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:  # fmt: skip
    return aten.max_pool2d_with_indices.default(tensor, kernel_size, stride, padding, dilation, ceil_mode)[0]


def _convolution(rank: int) -> Callable[..., Any]:
    def convolve(
        tensor: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1,
    ) -> Any:  # fmt: skip
        if tensor.ndim != rank + 2:
            return NotImplemented
        sizes = [_repeated(one, rank) for one in (stride, padding, dilation)]
        return aten.convolution.default(tensor, weight, bias, *sizes, False, [0] * rank, groups)

    return convolve


def _transposed_convolution(rank: int) -> Callable[..., Any]:
    def convolve(
        tensor: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        if tensor.ndim != rank + 2:
            return NotImplemented
        sizes = [_repeated(one, rank) for one in (stride, padding, dilation)]
        added = _repeated(output_padding, rank)
        return aten.convolution.default(tensor, weight, bias, *sizes, True, added, groups)

    return convolve


def _repeated(sizes: Any, rank: int) -> list[int]:
    given = [sizes] if isinstance(sizes, int) else [*sizes]
    return given * rank if len(given) == 1 else given


_OWN: Final[dict[Any, Callable[..., Any]]] = {
    aten.conv1d.default: _convolution(1),
    aten.conv2d.default: _convolution(2),
    aten.conv3d.default: _convolution(3),
    aten.conv_transpose1d.default: _transposed_convolution(1),
    aten.conv_transpose2d.input: _transposed_convolution(2),
    aten.conv_transpose3d.input: _transposed_convolution(3),
    aten.layer_norm.default: _layer_norm,
    aten.lerp.Scalar: _lerp,
    aten.linear.default: _linear,
    aten.matmul.default: _matmul,
    aten.max_pool2d.default: _max_pool2d,
    aten.stack.default: _stack,
    aten.pad.default: _pad,
    aten.square.default: lambda tensor: aten.pow.Tensor_Scalar(tensor, 2),
    aten.t.default: _t,
    aten.transpose.int: _swapped,
    aten.unbind.int: _unbind,
}
