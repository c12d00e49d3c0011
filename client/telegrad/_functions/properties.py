"""Methods and properties that the client answers from a tensor's meta; transposes; real and imaginary parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.operand_classes import unknown_handler_of
from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import AutogradError, NotSupportedError, ShapeError

from .creation import tensor
from .memory.dimension_order import dim_order


def _told(told: Callable[[Tensor], Any], input: Any) -> Any:
    """Return what a tensor's method tells; an object whose class answers functions is asked by ``told`` itself."""
    if not isinstance(input, Tensor) and unknown_handler_of((input,)) is not None:
        return told(input)  # its code asks such classes as soon as the first is known
    return getattr(input, told.__name__)()


def is_floating_point(input: Tensor) -> bool:
    """Whether elements are real floating-point numbers."""
    return _told(is_floating_point, input)  # type: ignore[no-any-return]


def is_complex(input: Tensor) -> bool:
    """Whether the elements of a tensor are complex numbers."""
    return _told(is_complex, input)  # type: ignore[no-any-return]


def numel(input: Tensor) -> int:
    """Return the number of elements of a tensor."""
    return _told(numel, input)  # type: ignore[no-any-return]


def is_same_size(self: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors have the same shape."""
    return self._meta.shape == other._meta.shape


def is_signed(self: Tensor) -> bool:
    """Tell whether the type has negative numbers."""
    return self._meta.dtype.is_signed


def is_inference(input: Tensor) -> bool:
    """Tell whether the tensor was made in inference mode: outside of it, such a one is not modified in place."""
    return input._is_inference


def get_device(self: Tensor) -> int:
    """Return the index of the tensor's GPU, -1 on a CPU."""
    index = self._meta.device.index
    return -1 if index is None else index


def new_tensor(
    self: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of ``data`` with the dtype and device of this one."""
    place = self.device if device is None else device
    return tensor(data, dtype=dtype or self.dtype, device=place, requires_grad=requires_grad)


def pin_memory(self: Tensor) -> Tensor:
    """Return the tensor itself: the server pins the memory that its copies need."""
    return self


def _transposed(self: Tensor) -> Any:
    if self.ndim == 2:
        return self.permute((1, 0))
    if not self.ndim:
        return _of_one_element("T", self)
    warnings.warn(
        "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated. Consider `x.mT` "
        "to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions",
        UserWarning,
        stacklevel=2,
    )
    return self.permute(tuple(reversed(range(self.ndim))))


def _of_one_element(name: str, tensor: Tensor) -> Tensor:
    warnings.warn(f"Tensor.{name} is deprecated on 0-D tensors, which it does not change", UserWarning, stacklevel=3)
    return tensor


def _matrix_transposed(self: Tensor) -> Any:
    if not self.ndim:
        return _of_one_element("mT", self)
    if self.ndim < 2:
        raise ShapeError(f"tensor.mT is only supported on matrices or batches of matrices, not on {self._meta}")
    return self.transpose(-2, -1)


def adjoint(input: Tensor) -> Tensor:
    """Return the conjugates of the transposes of matrices in the last two dimensions."""
    if not input.ndim:
        return function("conj")(_of_one_element("mH", input))  # type: ignore[no-any-return]
    if input.ndim < 2:
        raise ShapeError(f"adjoint: expected a tensor of at least two dimensions, not {input._meta}")
    return function("conj")(input.transpose(-2, -1))  # type: ignore[no-any-return]


def _conjugate_transposed(self: Tensor) -> Any:
    if not self.ndim:
        return _of_one_element("H", self).conj()
    if self.ndim != 2:
        raise ShapeError(f"tensor.H is only supported on matrices (2-D tensors), not on {self._meta}")
    return self.transpose(0, 1).conj()


def is_conj(input: Tensor) -> bool:
    """Return False: conjugates are computed at once."""
    return False


def is_neg(input: Tensor) -> bool:
    """Return False: negated elements are computed at once."""
    return False


def resolve_conj(input: Tensor) -> Tensor:
    """Return the tensor itself: its elements are conjugated already where they have to be."""
    return input


def resolve_neg(input: Tensor) -> Tensor:
    """Return the tensor itself: its elements are negated already where they have to be."""
    return input


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Tell whether both are the same tensor: the same memory, shape and strides."""
    if tensor is self:
        return True
    roots = [t if t._base is None else t._base for t in (self, tensor)]
    return roots[0] is roots[1] and (self._meta.offset, self._meta.shape, self._meta.strides) == (
        tensor._meta.offset, tensor._meta.shape, tensor._meta.strides,
    )  # fmt: skip


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replace each element by what a function of this program returns for it; reads and sends all elements."""
    return _written(self, [callable(element) for element in self.reshape(-1).tolist()])


def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:
    """Replace each element by what a function of this program returns for it and that of another tensor."""
    pairs = zip(self.reshape(-1).tolist(), tensor.expand(self.shape).reshape(-1).tolist(), strict=True)
    return _written(self, [callable(own, other) for own, other in pairs])


def _written(self: Tensor, elements: list[Any]) -> Tensor:
    self.copy_(tensor(elements, dtype=self.dtype, device=self.device).reshape(self.shape))
    return self


def is_pinned(self: Tensor) -> bool:
    """Return False: the server pins the memory that its copies need."""
    return False


def _part(name: str) -> Any:
    """Return the property ``real`` or ``imag``: a view, which can be assigned to; a real tensor is its ``real``."""

    def read(self: Tensor) -> Any:
        return self if name == "real" and not self.is_complex() else function(name)(self)

    def write(self: Tensor, value: Any) -> None:
        read(self).copy_(tensor(value, dtype=self.dtype.to_real()) if not isinstance(value, Tensor) else value)

    return property(read, write)


def _grad_dtype(self: Tensor) -> DType:
    """Return the type of the gradients that a leaf takes, which is its own."""
    if not self.is_leaf:
        raise AutogradError("grad_dtype can only be accessed on leaf tensors.")
    return self.dtype


def _set_grad_dtype(self: Tensor, value: Any) -> None:
    if not self.is_leaf:
        raise AutogradError("grad_dtype can only be set on leaf tensors.")
    if value is not None and not isinstance(value, DType):
        raise AutogradError(f"grad_dtype must be a torch.dtype or None, but got {type(value).__name__}")
    if value is not self.dtype:
        raise NotSupportedError(
            f"grad_dtype: the gradients of {self._meta} have its own type; convert .grad to {value}"
        )


METHODS: dict[str, Any] = {
    "grad_dtype": property(_grad_dtype, _set_grad_dtype),
    "is_same_size": is_same_size, "is_signed": is_signed, "is_inference": is_inference, "get_device": get_device,
    "new_tensor": new_tensor, "pin_memory": pin_memory,
    "is_cpu": property(lambda self: self._meta.device.type == "cpu"),
    "is_meta": property(lambda self: self._meta.device.type == "meta"),
    "is_sparse": property(lambda self: False),
    "is_quantized": property(lambda self: False),
    "is_nested": property(lambda self: False),
    "is_set_to": is_set_to, "apply_": apply_, "map_": map_,
    "is_pinned": is_pinned, "dim_order": dim_order, "is_conj": is_conj,
    "is_neg": is_neg, "resolve_conj": resolve_conj, "resolve_neg": resolve_neg,
    "layout": property(lambda self: strided),
    "is_sparse_csr": property(lambda self: False),
    "is_mkldnn": property(lambda self: False),
    "T": property(_transposed),
    "mT": property(_matrix_transposed),
    "mH": property(adjoint),
    "adjoint": adjoint,
    "H": property(_conjugate_transposed),
    "real": _part("real"),
    "imag": _part("imag"),
}  # fmt: skip
