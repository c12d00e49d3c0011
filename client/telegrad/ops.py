"""Operators under the names of PyTorch's dispatcher: ``telegrad.ops.aten.add.Tensor(a, b)``.

An operator has one function here, whichever of its overloads is named; the arguments select. Most are the functions
that users know under the same name. Those whose arguments differ, or that have no public name, are written below.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ShapeError
from telegrad_protocol.ops import PUBLIC


class Operator:
    """An operator, which is called itself or by the name of an overload, such as ``default`` or ``Tensor``."""

    def __init__(self, name: str, run: Callable[..., Any]) -> None:
        self.__name__ = name
        self._run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __getattr__(self, overload: str) -> Operator:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self

    def __repr__(self) -> str:
        return f"<operator aten.{self.__name__}>"


class Aten:
    """The operators of PyTorch's own library, by name."""

    def __getattr__(self, name: str) -> Operator:
        run: Callable[..., Any] | None = None if name.startswith("__") else _OWN.get(name) or _known(name)
        if run is None:
            raise AttributeError(f"telegrad.ops.aten has no operator {name!r}; docs/operations.md lists all operations")
        made = Operator(name, run)
        setattr(self, name, made)
        return made


def _known(name: str) -> Callable[..., Any] | None:
    if name in PUBLIC:
        known: Callable[..., Any] = function(name)
        return known
    for place in (import_module(__package__), Tensor, import_module(f"{__package__}.nn.functional")):
        run = getattr(place, name, None)
        if callable(run):
            return run  # type: ignore[no-any-return]
    return None


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


_OWN: Final[dict[str, Callable[..., Any]]] = {
    "slice": _slice,
    "embedding": _embedding,
    "native_dropout_backward": _native_dropout_backward,
    "max_pool2d_with_indices_backward": _max_pool2d_with_indices_backward,
}
aten: Final = Aten()
