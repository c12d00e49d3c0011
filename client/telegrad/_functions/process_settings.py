"""Settings and questions of PyTorch's own process, as far as they mean something for tensors on a server."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from telegrad._session import settings
from telegrad._session.devices import DeviceLike
from telegrad._tensor.host_arrays import TO_NUMPY
from telegrad._tensor.number_checks import is_integer
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, dtype_for, get_default_dtype
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError

from .creation import from_numpy


def get_num_threads() -> int:
    """Return what ``set_num_threads`` was given, at first the number of this machine's processors."""
    return int(settings.get("num_threads")) or os.cpu_count() or 1


def set_num_threads(num: int) -> None:
    """Bound the threads that an operation on the server's CPU uses, of those that its operator allows."""
    settings.put("num_threads", _number_of_threads("set_num_threads", num))


def get_num_interop_threads() -> int:
    """Return 1: a session runs its operations in the order of the program."""
    return 1


def set_num_interop_threads(num: int) -> None:
    """Do nothing but check: a session runs its operations in the order of the program."""
    _number_of_threads("set_num_interop_threads", num)


def _number_of_threads(name: str, given: Any) -> int:
    """Return a number of threads that fits into 32 bits; ArgumentError for anything else."""
    if not is_integer(given) or isinstance(given, bool):
        raise ArgumentError(f"{name} expects an int, but got {type(given).__name__}")
    if given <= 0:
        raise ArgumentError(f"{name} expects a positive integer, not {given}")
    if given >= 2**31:
        raise ArgumentError(f"{name}: Overflow when unpacking long: {given} threads are too many")
    return int(given)


def set_flush_denormal(mode: bool) -> bool:
    """Return False: the server keeps numbers that are too small for a normal exponent."""
    return False


def typename(obj: Any) -> str:
    """Return the name of an object's type with its module; of a tensor its type, such as ``telegrad.FloatTensor``."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", None)
    return kind.__qualname__ if module in (None, "builtins") else f"{module}.{kind.__qualname__}"


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """Return a tensor of ``count`` elements, all by default, of an object with Python's buffer, from byte ``offset``.

    The elements are copied, since tensors live on the server.
    """
    dtype, length = dtype_for("frombuffer", dtype), memoryview(buffer).nbytes
    if not 0 <= offset < length:
        raise ArgumentError(f"frombuffer: offset {offset} does not lie in a buffer of {length} bytes")
    if count == 0 or count < -1:
        raise ArgumentError(f"frombuffer: count must be positive, or -1 for all elements, not {count}")
    available, rest = divmod(length - offset, dtype.itemsize)
    if count > available or (count == -1 and rest):
        raise ArgumentError(
            f"frombuffer: {length - offset} bytes after offset {offset} do not hold {max(count, available + 1)} "
            f"elements of {dtype.itemsize} bytes"
        )
    taken = memoryview(buffer).cast("B")[offset : offset + (available if count == -1 else count) * dtype.itemsize]
    made = from_numpy(np.frombuffer(taken, np.uint8).copy()).cpu().view(dtype)
    return made.requires_grad_() if requires_grad else made


def from_file(
    filename: str, shared: bool | None = None, size: int = 0, *, dtype: DType | None = None, layout: Any = None,
    device: DeviceLike = None, pin_memory: bool | None = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of the first ``size`` elements of a file of this machine, in the machine's byte order.

    The elements are copied: ``shared=True``, with which changes would be written to the file, is refused.
    """
    if shared:
        raise NotSupportedError("from_file: a tensor on a server cannot share memory with a file; leave shared=False")
    kind = dtype or get_default_dtype()
    if kind not in TO_NUMPY:
        raise DTypeError(f"from_file: NumPy, which reads the file, has no {kind.name}; read uint8 and use view()")
    elements = np.fromfile(filename, TO_NUMPY[kind], size)
    if len(elements) < size:
        raise ArgumentError(f"from_file: {filename} holds {len(elements)} elements of {kind.name}, not {size}")
    made = from_numpy(elements) if device is None else from_numpy(elements).to(device)
    return made.requires_grad_() if requires_grad else made
