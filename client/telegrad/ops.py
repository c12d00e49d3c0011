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
from telegrad.library import OPERATORS
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
aten: Final = Aten()


def load_library(path: Any) -> None:
    """Refuse with OSError, as PyTorch does for a library that cannot be loaded; packages then go on without it."""
    raise OSError(f"load_library: {path} has kernels for PyTorch's process, which telegrad cannot run")


class CustomOperators:
    """The operators that a program has defined in one namespace of its own, by name: see `telegrad.library`."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        try:
            return OPERATORS[self._namespace][name]
        except KeyError:
            raise AttributeError(f"telegrad.ops.{self._namespace} has no operator {name!r}") from None


def __getattr__(name: str) -> CustomOperators:
    if name.startswith("__") or name not in OPERATORS:
        raise AttributeError(f"telegrad.ops has no operators of {name!r}; telegrad.library.custom_op defines some")
    return CustomOperators(name)
