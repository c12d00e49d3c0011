"""Launches of Numba's kernels that came before: types, lowering and the kernel are kept and looked up.

A launch is known by the types of its arguments; an array's type, and the parameters it becomes, are kept by its meta.
What is less usual than tensors and Python's numbers is lowered anew each time. Imported with Numba alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from numba.cuda import types
from numba.cuda.np import numpy_support

from telegrad._tensor.host_arrays import TO_NUMPY, UNKNOWN_TO_NUMPY
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import DTypeError
from telegrad_protocol.kernel_messages import ADDRESS, INTEGER, NULL
from telegrad_protocol.meta import Meta

from .remote_kernel import RemoteKernel

_MOST_KNOWN: Final = 4096
_INT64: Final = 1 << 63


class ArrayParameters(NamedTuple):
    """How Numba's kernels take a tensor: its type, the forms of its parameters, and those around its number."""

    kind: Any
    code: int
    forms: str
    sizes: tuple[int, int]
    extents: tuple[int, ...]


class _Launch(NamedTuple):
    """``packers`` make the bytes of the arguments that are numbers; they are None for tensors."""

    remote: RemoteKernel
    forms: str
    packers: tuple[Callable[[Any], bytes] | None, ...]


class Launches:
    """What stands for a dispatcher among what sessions keep, for as long as it lives."""


_arrays: dict[Meta, ArrayParameters] = {}


def array_parameters(name: str, meta: Meta) -> ArrayParameters:
    """Return how a kernel takes a tensor of this meta; raises DTypeError where Numba has no such arrays."""
    known = _arrays.get(meta)
    if known is None:
        if meta.dtype in UNKNOWN_TO_NUMPY:
            raise DTypeError(f"{name}: Numba has no arrays of {meta.dtype}")
        kind = types.Array(numpy_support.from_dtype(TO_NUMPY[meta.dtype]), meta.ndim, _layout_of(meta))
        itemsize = meta.dtype.itemsize
        extents = (*meta.shape, *[stride * itemsize for stride in meta.strides])
        forms = f"{NULL}{NULL}{INTEGER}{INTEGER}{ADDRESS}{INTEGER * len(extents)}"
        if len(_arrays) >= _MOST_KNOWN:
            _arrays.clear()
        known = _arrays[meta] = ArrayParameters(kind, kind._code, forms, (meta.numel, itemsize), extents)
    return known


def _layout_of(meta: Meta) -> str:
    if meta.is_contiguous:
        return "C"
    expected = 1
    for size, stride in zip(meta.shape, meta.strides, strict=True):
        if size != 1 and stride != expected:
            return "A"
        expected *= size
    return "F"


def launch(
    dispatcher: Any, grid: tuple[int, int, int], block: tuple[int, int, int], args: Sequence[Any], shared: int
) -> bool:
    """Launch as such a call was launched before; False where none was."""
    owner = dispatcher.__dict__.get("_telegrad_launches")
    looked = None if owner is None else _looked_at(args)
    if looked is None:
        return False
    session, key = looked
    launches = session.kernels.get(owner)
    known = None if launches is None else launches.get(key)
    if known is None:
        return False
    values: list[Any] = []
    try:
        for arg, pack in zip(args, known.packers, strict=True):
            if pack is not None:
                values.append(pack(arg))
            else:
                _, _, _, sizes, extents = _arrays[arg._meta]
                values += (*sizes, arg._id, *extents)
    except (struct.error, OverflowError):  # a number that its type cannot hold
        return False
    known.remote.launch(grid, block, known.forms, values, shared)
    return True


def remember(dispatcher: Any, remote: RemoteKernel, forms: str, kinds: Sequence[Any], args: Sequence[Any]) -> None:
    """Keep how a launch was made, for calls like it."""
    looked = _looked_at(args)
    if looked is None:
        return
    packers = [None if isinstance(kind, types.Array) else _packer(kind) for kind in kinds]
    if any(pack is None and not isinstance(arg, Tensor) for pack, arg in zip(packers, args, strict=True)):
        return
    session, key = looked
    owner = dispatcher.__dict__.setdefault("_telegrad_launches", Launches())
    launches = session.kernels.setdefault(owner, {})
    if len(launches) >= _MOST_KNOWN:
        launches.clear()
    launches[key] = _Launch(remote, forms, tuple(packers))


def _packer(kind: Any) -> Callable[[Any], bytes] | None:
    """Return what makes the bytes of a number of a type, where ``struct`` has it."""
    if isinstance(kind, (types.Integer, types.Float, types.Boolean)):
        form = numpy_support.as_dtype(kind).char
        made: Callable[[Any], bytes] = struct.Struct("=" + {"l": "q", "L": "Q"}.get(form, form)).pack
        return made
    return None


def _looked_at(args: Sequence[Any]) -> tuple[Any, tuple[Any, ...]] | None:
    """Return the session of the arguments, and what they are known by; None where one is unusual."""
    session: Any = None
    key: list[Any] = []
    for arg in args:
        kind = arg.__class__
        if isinstance(arg, Tensor):
            meta = arg._meta
            if arg._session is not session:
                if session is not None or meta.device.type != "cuda":
                    return None
                session, device = arg._session, meta.device
                key.append(device.name)
            known = _arrays.get(meta)
            if known is None or meta.device is not device:
                return None
            key.append(known.code)
        elif kind is float or kind is bool or (kind is int and -_INT64 <= arg < _INT64):
            key.append(kind)
        else:
            return None
    return None if session is None or not hasattr(session, "kernels") else (session, tuple(key))
