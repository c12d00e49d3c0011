"""What a storage that a program makes begins with: memory without values, numbers, or the bytes of a buffer."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from telegrad._functions.creation import from_numpy, tensor
from telegrad._functions.process_settings import from_file
from telegrad._ops.functions import function
from telegrad._session.devices import DeviceLike
from telegrad._tensor.number_checks import is_integer
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType, bool_
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

_ORDERS = {"native": sys.byteorder, "little": "little", "big": "big"}


def elements_of(name: str, args: tuple[Any, ...], dtype: DType, device: DeviceLike) -> Tensor:
    """Return a tensor of one dimension with what a storage was asked for: nothing, a number of elements, or elements.

    It is on the server's CPU where no device is named. Raises ArgumentError for more than one argument.
    """
    place = "cpu" if device is None else device
    if len(args) > 1:
        raise ArgumentError(f"{name}: Too many positional arguments given, {len(args)}: expected a size or a sequence")
    (given,) = args or (0,)
    if is_integer(given):
        return function("empty")(int(given), dtype=dtype, device=place)  # type: ignore[no-any-return]
    if not isinstance(given, (list, tuple)):
        raise ArgumentTypeError(
            f"{name}: Argument type not recognized: {type(given).__name__}; expected a size or a list"
        )
    return tensor(list(given), dtype=dtype, device=place)


def elements_in(
    name: str, buffer: Any, byte_order: str | None, count: int, offset: int, dtype: DType
) -> Tensor:  # fmt: skip
    """Return a tensor of ``count`` elements, all by default, of an object with Python's buffer, from byte ``offset``.

    ``byte_order`` is "little", "big" or "native"; types of one byte need none, but for bool.
    """
    size = dtype.itemsize
    if byte_order is None and (size > 1 or dtype is bool_):
        raise ArgumentError(f"{name}: function missing required argument 'byte_order' (pos 2)")
    if byte_order is not None and byte_order not in _ORDERS:
        raise ArgumentError(f"{name}: invalid byte_order {byte_order!r} (expected 'big', 'little', or 'native')")
    data = memoryview(buffer).cast("B")[offset:]
    if count < 0 and len(data) % size:
        raise ArgumentError(f"{name}: buffer size ({len(data)}) must be a multiple of element size ({size})")
    taken = data[: (len(data) // size if count < 0 else count) * size]
    if count > 0 and len(taken) < count * size:
        raise ArgumentError(f"{name}: {count} elements of {size} bytes do not lie in {len(data)} bytes")
    rows = np.frombuffer(taken, np.uint8).reshape(-1, _unit(dtype))
    if byte_order is not None and _ORDERS[byte_order] != "little":
        rows = rows[:, ::-1]
    made = from_numpy(np.ascontiguousarray(rows).reshape(-1)).cpu()
    return made != 0 if dtype is bool_ else made.view(dtype)


def elements_in_file(filename: str, shared: bool, count: int, dtype: DType) -> Tensor:
    """Return a tensor of the first elements of a file; changes are not written to it, so ``shared`` is refused."""
    return from_file(filename, shared, count, dtype=dtype, device="cpu")


def swap_bytes(shown: Tensor, dtype: DType) -> None:
    """Reverse the bytes of each element of a type in memory that is shown as bytes."""
    rows = shown.view(-1, _unit(dtype))
    rows.copy_(rows.flip(1))


def _unit(dtype: DType) -> int:
    """Bytes that belong together in the order of a machine: a complex number is two of them."""
    return dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
