"""Methods that read a tensor's elements from the server, as arrays or Python numbers. Each costs one round trip."""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad._ops.operand_classes import overrides
from telegrad._ops.sharing import lend, sharing
from telegrad._session.grad_mode import is_grad_enabled
from telegrad._session.own_code import note_once
from telegrad._tensor.host_arrays import UNKNOWN_TO_NUMPY, array_of, scalar_of
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, AutogradError, DTypeError, ShapeError


def read_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Return a copy of the elements; bfloat16 as float32 and complex32 as complex64, since NumPy has neither."""
    return array_of(*tensor._session.read(tensor._id, tensor._meta.nbytes))


def numpy(self: Tensor, *, force: bool = False) -> np.ndarray[Any, Any]:
    """Return a copy of the elements as a NumPy array; ``force`` allows what NumPy cannot show: see below.

    Refused without it: tensors that require grad, where gradients are recorded, and bfloat16 and complex32.
    """
    if self.requires_grad and not force and is_grad_enabled():
        raise AutogradError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if self._meta.dtype in UNKNOWN_TO_NUMPY and not force:
        wider = "float" if self._meta.dtype is dtypes.bfloat16 else "cfloat"
        raise ArgumentTypeError(f"numpy: NumPy has no {self._meta.dtype.name}; use tensor.{wider}().numpy()")
    array = read_array(self)
    if sharing.lent:
        lend(self, array)
    return array


def tolist(self: Tensor) -> Any:
    """Return the elements as nested lists of Python numbers; a 0-d tensor gives one number."""
    return read_array(self).tolist()


def item(self: Tensor) -> Any:
    """Return the one element as a Python number."""
    if self._meta.numel != 1:
        raise ShapeError(f"item: a Tensor with {self._meta.numel} elements cannot be converted to Scalar; use tolist()")
    is_asked = overrides.dispatch_modes or self._session.holds_gradients
    if is_asked and not overrides.ignores_dispatch and overrides.dispatch_handler is not None:
        return overrides.dispatch_handler("item", (self,), {})
    dtype, _, data = self._session.read(self._id)
    return scalar_of(dtype, data)


def is_nonzero(self: Tensor) -> bool:
    """Tell whether the one element is not zero."""
    return bool(self)


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    if copy is False:
        raise ArgumentError("__array__: a remote tensor cannot be shown without a copy")
    array = numpy(self)
    return array if dtype is None else array.astype(dtype, copy=False)


def _more(numel: int) -> str:
    return "more than one value" if numel else "no values"


def _bool(self: Tensor) -> bool:
    if self._meta.numel != 1:
        raise ShapeError(f"Boolean value of Tensor with {_more(self._meta.numel)} is ambiguous; use any() or all()")
    return bool(item(self))


def _number(self: Tensor, kind: str) -> Any:
    if self._meta.numel != 1:
        raise ArgumentError(f"{kind}: only a tensor with one element can become a number, not {self._meta}")
    value = item(self)
    if kind == "complex" or not self._meta.dtype.is_complex:
        return value
    if value.imag:
        raise DTypeError(f"{kind}: value cannot be converted to type double without overflow: {value}; use tensor.real")
    return value.real


def _note_lost_gradient(tensor: Tensor) -> None:
    if tensor.requires_grad and is_grad_enabled():
        note_once(
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
            "Consider using tensor.detach() first."
        )


def _float(self: Tensor) -> float:
    _note_lost_gradient(self)
    return float(_number(self, "float"))


def _int(self: Tensor) -> int:
    return int(_number(self, "int"))


def _complex(self: Tensor) -> complex:
    _note_lost_gradient(self)
    return complex(_number(self, "complex"))


def _index(self: Tensor) -> int:
    if self._meta.dtype.category > dtypes.INTEGER or self._meta.numel != 1:
        raise ArgumentTypeError(f"only integer tensors of a single element can be an index, not {self._meta}")
    return int(item(self))


METHODS: dict[str, Any] = {
    "numpy": numpy, "tolist": tolist, "item": item, "is_nonzero": is_nonzero, "__array__": _array, "__bool__": _bool,
    "__float__": _float, "__int__": _int, "__complex__": _complex, "__index__": _index,
}  # fmt: skip
