"""Numba's device arrays on the server's GPU, for programs on a machine that has none.

A device array is a tensor that shows itself as NumPy does: strides in bytes, NumPy's types. Copies to the host wait for
the server; nothing else does. Imported with Numba alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from telegrad._functions.creation import as_tensor
from telegrad._ops.functions import function
from telegrad._session.current import current_session
from telegrad._session.devices import current_gpu
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.host_arrays import FROM_NUMPY, TO_NUMPY
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DTypeError, NotSupportedError
from telegrad_protocol.meta import Device

_empty: Any = function("empty")


def the_gpu() -> Device:
    """Return the current GPU."""
    return current_gpu(current_session(), "numba.cuda")


def _reversed(tensor: Tensor) -> Tensor:
    return tensor.permute(*range(tensor.ndim)[::-1])


class DeviceArray:
    """An array on the GPU: ``tensor`` with the attributes of Numba's ``DeviceNDArray``."""

    __cuda_ndarray__ = True

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self.tensor._meta.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of the elements."""
        return np.dtype(TO_NUMPY[self.tensor._meta.dtype])

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in bytes."""
        meta = self.tensor._meta
        return tuple([stride * meta.dtype.itemsize for stride in meta.strides])

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.tensor._meta.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.tensor._meta.numel

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    alloc_size = nbytes

    @property
    def T(self) -> DeviceArray:
        """The transpose."""
        return self.transpose()

    def transpose(self, axes: Any = None) -> DeviceArray:
        """Return a view with the dimensions in another order, by default reversed."""
        return DeviceArray(_reversed(self.tensor) if axes is None else self.tensor.permute(*axes))

    def is_c_contiguous(self) -> bool:
        """Whether the elements lie row by row."""
        return self.tensor._meta.is_contiguous

    def is_f_contiguous(self) -> bool:
        """Whether the elements lie column by column."""
        return _reversed(self.tensor)._meta.is_contiguous

    @property
    def flags(self) -> dict[str, bool]:
        """How the elements lie, as NumPy's arrays say it."""
        return {"C_CONTIGUOUS": self.is_c_contiguous(), "F_CONTIGUOUS": self.is_f_contiguous()}

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> Any:
        """Return the elements as an array of NumPy, or write them into one; waits for the server."""
        given = self.tensor.detach().cpu().numpy()
        if ary is None:
            return np.array(given, order="F" if self.is_f_contiguous() and not self.is_c_contiguous() else "C")
        if ary.shape != self.shape or ary.dtype != self.dtype:
            raise ArgumentError(f"copy_to_host: {ary.dtype}{ary.shape} cannot take {self.dtype}{self.shape}")
        ary[...] = given
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Write the elements of an array of NumPy, or of another one of the GPU, into this one."""
        source = ary.tensor if isinstance(ary, DeviceArray) else ary if isinstance(ary, Tensor) else uploaded(ary)
        if source._meta.shape != self.shape:
            raise ArgumentError(f"copy_to_device: shapes {tuple(source.shape)} and {self.shape} differ")
        self.tensor.detach().copy_(source)

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceArray:
        """Return a view of another shape."""
        shape = newshape[0] if len(newshape) == 1 and isinstance(newshape[0], (tuple, list)) else newshape
        if order == "F":
            return DeviceArray(_reversed(_reversed(self.tensor).view(*tuple(shape)[::-1])))
        return DeviceArray(self.tensor.view(*shape))

    def ravel(self, order: str = "C", stream: Any = 0) -> DeviceArray:
        """Return a view with one dimension."""
        return self.reshape(self.size, order=order)

    def squeeze(self, axis: Any = None, stream: Any = 0) -> DeviceArray:
        """Return a view without dimensions of size 1."""
        return DeviceArray(self.tensor.squeeze() if axis is None else self.tensor.squeeze(axis))

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceArray]:
        """Yield pieces of so many elements of an array with one dimension."""
        return (DeviceArray(piece) for piece in self.tensor.split(section))

    def view(self, dtype: Any) -> DeviceArray:
        """Return a view of the same bytes as another type."""
        return DeviceArray(self.tensor.view(_dtype(dtype)))

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, item: Any) -> Any:
        """Return a part: a view, or where it is one element, its value, for which this waits."""
        part = self.tensor[item]
        return DeviceArray(part) if part.ndim else self.dtype.type(part.item())

    getitem = __getitem__

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write numbers, an array of NumPy or another one of the GPU into a part."""
        with no_grad():
            self.tensor[key] = value.tensor if isinstance(value, DeviceArray) else value

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        """Write into a part."""
        self[key] = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.copy_to_host() if dtype is None else self.copy_to_host().astype(dtype)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{self.shape} on {self.tensor.device})"


def _dtype(given: Any) -> DType:
    numpy = np.dtype(given)
    if numpy not in FROM_NUMPY:
        raise DTypeError(f"numba.cuda: the server has no arrays of {numpy}")
    return FROM_NUMPY[numpy]


def uploaded(obj: Any) -> Tensor:
    """Return the elements of an array of NumPy as a tensor of the same order."""
    array = np.asarray(obj)
    _dtype(array.dtype)
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        return _reversed(as_tensor(array.T, device=the_gpu()))
    if not array.flags.c_contiguous:
        raise ArgumentError("to_device: the array is not contiguous; pass numpy.ascontiguousarray(array)")
    return as_tensor(array, device=the_gpu())


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    """Return an array on the GPU with the elements of an array of NumPy, or write them into ``to``."""
    if to is None:
        return obj if isinstance(obj, DeviceArray) else DeviceArray(obj if isinstance(obj, Tensor) else uploaded(obj))
    if copy:
        to.copy_to_device(obj)
    return to


def device_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceArray:
    """Return an array on the GPU whose elements are not initialised."""
    if strides is not None:
        raise NotSupportedError("device_array: strides are those of order 'C' or 'F'")
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    made = _empty(sizes[::-1] if order == "F" else sizes, dtype=_dtype(dtype), device=the_gpu())
    return DeviceArray(_reversed(made) if order == "F" else made)


def device_array_like(ary: Any, stream: Any = 0) -> DeviceArray:
    """Return an array of the shape, type and order of another one."""
    is_f = ary.ndim > 1 and bool(ary.flags["F_CONTIGUOUS"]) and not bool(ary.flags["C_CONTIGUOUS"])
    return device_array(ary.shape, ary.dtype, order="F" if is_f else "C")


def as_cuda_array(obj: Any, sync: bool = True) -> DeviceArray:
    """Return a tensor as a device array of the same memory."""
    if isinstance(obj, DeviceArray):
        return obj
    if not isinstance(obj, Tensor) or not obj.is_cuda:
        raise ArgumentTypeError(f"as_cuda_array: expected a tensor on a GPU, not {type(obj).__name__}")
    return DeviceArray(obj)


def is_cuda_array(obj: Any) -> bool:
    """Whether an object is an array or a tensor on a GPU."""
    return isinstance(obj, DeviceArray) or (isinstance(obj, Tensor) and obj.is_cuda)


def pinned_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: Any = "C") -> Any:
    """Return an array of this machine: what is copied to a server is not pinned."""
    return np.empty(shape, dtype, order=order)


def pinned_array_like(ary: Any) -> Any:
    """Return an array of this machine of the shape and type of another one."""
    return np.empty_like(ary)


@contextmanager
def pinned(*arylist: Any) -> Iterator[None]:
    """Do nothing: what is copied to a server is not pinned."""
    yield


def mapped_array(*args: Any, **kwargs: Any) -> Any:
    """Refuse: a GPU of another machine cannot read this one's memory."""
    raise NotSupportedError("mapped and managed arrays are memory of two machines; use to_device and copy_to_host")


mapped = mapped_array_like = managed_array = open_ipc_array = mapped_array
