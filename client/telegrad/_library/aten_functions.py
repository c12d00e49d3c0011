"""The functions behind PyTorch's operators: those that users know under the same name, and some written here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ShapeError
from telegrad_protocol.ops import PUBLIC

_PACKAGE: Final = "telegrad"
_PLACES: Final = ("linalg", "fft", "special")
"""Packages whose functions the operators are named after, such as ``linalg_inv``."""


def function_of(name: str) -> Callable[..., Any] | None:
    """Return the function that an operator of PyTorch's library is; None if telegrad has none."""
    if name.startswith("__"):
        return None
    own = _OWN.get(name)
    if own is not None:
        return own
    if name in PUBLIC:
        known: Callable[..., Any] = function(name)
        return known
    package = import_module(_PACKAGE)
    for place in (package, Tensor, package.nn.functional):
        run = getattr(place, name, None)
        if callable(run) and not isinstance(run, type):
            return run  # type: ignore[no-any-return]
    below, _, last = name.partition("_")
    run = getattr(getattr(package, below), last, None) if below in _PLACES else None
    return run if callable(run) else None


def _slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    along = dim % max(input.ndim, 1)
    return input[(*[slice(None)] * along, slice(start, end, step))]


def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    ignored = None if padding_idx < 0 else padding_idx
    result: Tensor = function("embedding")(indices, weight, ignored, None, 2.0, scale_grad_by_freq, sparse)
    return result


def _native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    return grad_output * mask * scale


def _max_pool2d_with_indices_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    indices: Tensor,
) -> Tensor:  # fmt: skip
    if grad_output.shape != indices.shape:
        raise ShapeError(f"max_pool2d_with_indices_backward: {indices._meta} are not positions of {grad_output._meta}")
    spread = self.masked_fill(self == self, 0).masked_fill(self != self, 0)  # its gradient by ``self`` is zero
    flat: Tensor = spread.flatten(-2).scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2))
    return flat.reshape(self.shape)


def _sparse_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
    return import_module("telegrad.sparse").addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def _sparse_mm_reduce(mat1: Tensor, mat2: Tensor, reduce: str) -> Any:
    return import_module("telegrad.sparse").mm(mat1, mat2, reduce), None


_OWN: Final[dict[str, Callable[..., Any]]] = {
    "slice": _slice,
    "embedding": _embedding,
    "_sparse_addmm": _sparse_addmm,
    "_sparse_mm_reduce_impl": _sparse_mm_reduce,
    "_pin_memory": lambda self, device=None: self.pin_memory(),
    "native_dropout_backward": _native_dropout_backward,
    "max_pool2d_with_indices_backward": _max_pool2d_with_indices_backward,
}
