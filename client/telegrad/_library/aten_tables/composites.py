"""Operators of PyTorch's library that consist of functions which users know under other names.

Forms without an in-place mark of operations that are only in place; cells of recurrent layers; casts; convolutions with
the arguments of the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from operator import and_, iand, ilshift, ior, irshift, ixor, lshift, or_, rshift, xor
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes

_linear: Any = function("linear")


def _on_copy(name: str) -> Callable[..., Any]:
    """Return what a method does in place, done to a copy."""
    return lambda self, *args, **kwargs: getattr(self.clone(), name)(*args, **kwargs)


def _functional(name: str) -> Any:
    return getattr(import_module("telegrad.nn.functional"), name)


def _reduced(name: str) -> Callable[..., Any]:
    """Return a loss whose reduction is a number, as PyTorch's dispatcher has it."""

    def run(
        self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1, ignore_index: int = -100,
        *rest: Any,
    ) -> Any:  # fmt: skip
        named = {"label_smoothing": rest[0]} if rest else {}
        mode = ("none", "mean", "sum")[reduction]
        return _functional(name)(self, target, weight, ignore_index=ignore_index, reduction=mode, **named)

    return run


def _convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *switches: bool,
) -> Any:  # fmt: skip
    dims = weight.ndim - 2
    if transposed:
        run = _functional(f"conv_transpose{dims}d")
        return run(input, weight, bias, tuple(stride), tuple(padding), tuple(output_padding), groups, tuple(dilation))
    run = _functional(f"conv{dims}d")
    return run(input, weight, bias, tuple(stride), tuple(padding), tuple(dilation), groups)


def _plain_convolution(dims: int) -> Callable[..., Any]:
    """Return a convolution with the size of its kernel among the arguments."""

    def run(
        self: Tensor, weight: Tensor, kernel_size: Any, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0
    ) -> Any:
        sizes = [value if isinstance(value, int) else tuple(value) for value in (stride, padding)]
        return _functional(f"conv{dims}d")(self, weight, bias, *sizes)

    return run


def _gates(input: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> tuple[Tensor, Tensor]:
    return _linear(input, w_ih, b_ih), _linear(h, w_hh, b_hh)


def _lstm_cell(
    input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    h, c = hx
    of_input, of_state = _gates(input, h, w_ih, w_hh, b_ih, b_hh)
    i, f, g, o = (of_input + of_state).chunk(4, 1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    of_input, of_state = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    (r, z, n), (state_r, state_z, state_n) = of_input.chunk(3, 1), of_state.chunk(3, 1)
    new = (n + (r + state_r).sigmoid() * state_n).tanh()
    kept = (z + state_z).sigmoid()
    return new + kept * (hx - new)


def _rnn_cell(name: str) -> Callable[..., Any]:
    def run(
        input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Any:
        of_input, of_state = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
        return getattr(of_input + of_state, name)()

    return run


def _norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Any:
    if dim == -1:
        return v.norm(pow)
    return v.norm(pow, dim=tuple([place for place in range(v.ndim) if place != dim % v.ndim]), keepdim=True)


def _aminmax(self: Tensor, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return self.aminmax(dim=dim, keepdim=keepdim)


def _elu(self: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """Return scale * x above zero, and scale * alpha * (exp(input_scale * x) - 1) below."""
    if scale == input_scale == 1:
        return _functional("elu")(self, alpha)
    below = (self.clamp(max=0) * input_scale).expm1() * alpha
    return function("where")(self > 0, self, below) * scale


def _tensordot(self: Tensor, other: Tensor, dims_self: Any, dims_other: Any) -> Any:
    return import_module("telegrad").tensordot(self, other, (tuple(dims_self), tuple(dims_other)))


def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    copied: Tensor = src.to(self.device, self.dtype, copy=True).expand(self.shape)
    return copied.contiguous()


def _put(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False, unsafe: bool = False) -> Tensor:
    return self.index_put_(tuple(indices), values, accumulate)


_CASTS: Final = {
    "Byte": dtypes.uint8, "Char": dtypes.int8, "Double": dtypes.float64, "Float": dtypes.float32,
    "Half": dtypes.float16,
    "Int": dtypes.int32, "Long": dtypes.int64, "Short": dtypes.int16,
}  # fmt: skip
_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "and": and_, "or": or_, "xor": xor, "lshift": lshift, "rshift": rshift,
    "iand": iand, "ior": ior, "ixor": ixor, "ilshift": ilshift, "irshift": irshift,
}  # fmt: skip

COMPOSITES: Final[dict[str, Callable[..., Any]]] = {
    **{f"__{name}__": run for name, run in _OPERATORS.items()},
    **{f"_cast_{name}": lambda self, non_blocking=False, dtype=dtype: self.to(dtype) for name, dtype in _CASTS.items()},
    **{
        name: _on_copy(f"{name}_")
        for name in ("uniform", "exponential", "geometric", "cauchy", "log_normal", "random", "zero")
    },
    "_convolution": _convolution,
    "thnn_conv2d": _plain_convolution(2),
    "slow_conv3d": _plain_convolution(3),
    "lstm_cell": _lstm_cell,
    "gru_cell": _gru_cell,
    "rnn_tanh_cell": _rnn_cell("tanh"),
    "rnn_relu_cell": _rnn_cell("relu"),
    "cross_entropy_loss": _reduced("cross_entropy"),
    "nll_loss_nd": _reduced("nll_loss"),
    "nll_loss2d": _reduced("nll_loss"),
    "log_sigmoid": lambda self: _functional("logsigmoid")(self),
    "affine_grid_generator": lambda theta, size, align_corners: _functional("affine_grid")(theta, size, align_corners),
    "norm_except_dim": _norm_except_dim,
    "elu": _elu,
    "elu_": lambda self, *args, **named: self.copy_(_elu(self, *args, **named)),
    "tensordot": _tensordot,
    "native_norm": lambda self, p=2: self.norm(p),
    "_aminmax": _aminmax,
    "_stack": lambda tensors, dim=0: function("stack")(tensors, dim),
    "_unsafe_index": lambda self, indices: self[tuple([slice(None) if one is None else one for one in indices])],
    "_unsafe_index_put": lambda self, indices, values, accumulate=False: _put(
        self.clone(), indices, values, accumulate
    ),
    "_index_put_impl_": _put,
    "_int_mm": lambda self, mat2: self.to(dtypes.int32) @ mat2.to(dtypes.int32),
    "_pad_circular": lambda self, pad: _functional("pad")(self, tuple(pad), "circular"),
    "copy": _copy,
    "nonzero_numpy": lambda self: list(self.nonzero(as_tuple=True)),
}
