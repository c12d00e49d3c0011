"""Launches of what Triton has compiled: arguments in Triton's order, as the kernel's parameters take them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._session.current import current_session
from telegrad._session.devices import current_gpu
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError
from telegrad_protocol.kernel_messages import (
    ADDRESS,
    BYTES,
    COOPERATIVE,
    FLOAT,
    INTEGER,
    NULL,
    PROGRAMMATIC,
    TENSOR_MAP,
)
from telegrad_protocol.meta import Device

from .remote_kernel import CompiledKernel, check_tensor, place_of
from .triton_prepared import Done, Geometry, noted

if TYPE_CHECKING:
    from telegrad._session.session import ClientSession

_WARP = 32
_MAP_TYPES = {8: 10, 9: 8, 10: 9}
"""The driver's numbers of element types where Triton's, which kernels use, are others."""
_TF32 = 11
_empty: Any = function("empty")


class Pointer:
    """A tensor as Triton's specialisation looks at it: its type, and how its address is aligned.

    Blocks of memory begin at multiples of 512 bytes, so the offset within the storage tells, and nobody is asked.
    """

    __slots__ = ("dtype", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.dtype = tensor._meta.dtype

    def data_ptr(self) -> int:
        """Return an address that is aligned as the tensor's is."""
        meta = self.tensor._meta
        return (meta.offset * meta.dtype.itemsize) % 16 or 16

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


class Descriptor:
    """How a kernel takes a descriptor of a tensor that the host makes: as a map for the copy engine, or in parts."""

    def __init__(self, kind: str, tiling: dict[str, Any] | None) -> None:
        self._dtype, self._tiling = kind.partition("<")[2].partition("[")[0], tiling
        if tiling is not None and (tiling.get("fp4_padded") or tiling.get("is_im2col")):
            raise NotSupportedError("triton: descriptors of padded 4-bit numbers and of convolutions are not passed on")

    def parameters(self, arg: Any) -> Iterator[tuple[str, Any]]:
        """Yield types and values of the kernel's parameters."""
        shape, strides = tuple(map(int, arg.shape)), tuple(map(int, arg.strides))
        if self._tiling is None:
            yield f"*{self._dtype}", arg.base
            yield from (("i64", size) for size in (*shape, *strides))
            yield "i1", arg.padding == "nan"
            if hasattr(arg, "round_f32_to_tf32"):
                yield "i1", arg.round_f32_to_tf32
        else:
            tiling = self._tiling
            kind = _TF32 if getattr(arg, "round_f32_to_tf32", False) else _MAP_TYPES.get(*[tiling["elem_type"]] * 2)
            box = tuple(tiling["block_size"])
            rest = kind, tiling["elem_size"], shape, strides, box, tiling["swizzle"], arg.padding == "nan"
            yield "nvTmaDesc", (arg.base, *rest)
        yield from (("i32", size) for size in shape)
        yield from (("i64", stride) for stride in strides)


def _with_descriptors(types: list[Any], metadata: Any) -> list[Any]:
    """Return Triton's types, with descriptors in their places."""
    tilings = iter(getattr(metadata, "tensordesc_meta", None) or ())

    def placed(kind: Any) -> Any:
        if isinstance(kind, tuple):
            return tuple(map(placed, kind))
        return Descriptor(kind, next(tilings, None)) if str(kind).startswith("tensordesc") else kind

    return [placed(kind) for kind in types]


class RemoteLauncher:
    """Triton's launcher of one compiled kernel."""

    def __init__(self, src: Any, metadata: Any) -> None:
        types = _with_descriptors(list(src.signature.values()), metadata)
        self._types = types
        self._is_flat = not any(isinstance(kind, (tuple, Descriptor)) for kind in types)
        self._places = [place for place, kind in enumerate(types) if kind != "constexpr"]
        self._forms = [_form_of(types[place]) for place in self._places] if self._is_flat else []
        self._usual = "".join(self._forms)
        self._ctas: int = getattr(metadata, "num_ctas", 1)
        self._block = (_WARP * metadata.num_warps, 1, 1)
        self._shared: int = metadata.shared
        self._cluster = None if self._ctas == 1 else (self._ctas, 1, 1)
        self._scratch: int = getattr(metadata, "global_scratch_size", 0) or 0
        if getattr(metadata, "profile_scratch_size", 0):
            raise NotSupportedError("triton: kernels that are instrumented for profiling are not passed to the server")
        is_cooperative = getattr(metadata, "launch_cooperative_grid", False)
        self._flags = COOPERATIVE * bool(is_cooperative) + PROGRAMMATIC * bool(getattr(metadata, "launch_pdl", False))
        self._geometry = Geometry(self._block, self._ctas, self._shared, self._cluster, self._flags)

    def __call__(
        self, x: int, y: int, z: int, stream: Any, function: CompiledKernel, packed: Any, launch_metadata: Any,
        enter_hook: Any, exit_hook: Any, *args: Any,
    ) -> None:  # fmt: skip
        """Launch on the current stream of the GPU that the tensors are on."""
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if x > 0 and y > 0 and z > 0:
            self._launch((int(x) * self._ctas, int(y), int(z)), function, args)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _launch(self, grid: tuple[int, int, int], function: CompiledKernel, args: Sequence[Any]) -> None:
        forms, values, where = self._encode(function.name, args)
        session, device = where
        kernel = function.on(session, device)
        extra = NULL * 2 if function.parameters is None else NULL * (len(function.parameters) - len(forms))
        if self._scratch:
            nbytes = self._scratch * grid[0] * grid[1] * grid[2]
            scratch = _empty(nbytes, dtype=dtypes.uint8, device=device)
            values.append(scratch._id)
            extra = ADDRESS + extra[1:]
        elif self._is_flat:
            noted.done = Done(kernel, forms + extra, self._places, self._geometry)
        kernel.launch(grid, self._block, forms + extra, values, self._shared, self._cluster, self._flags)

    def _encode(self, name: str, args: Sequence[Any]) -> tuple[str, list[Any], tuple[ClientSession, Device]]:
        """Return forms, what stands for the arguments, and the GPU that their tensors are on."""
        forms, usual = self._forms, self._usual
        given = [args[place] for place in self._places]
        if not self._is_flat:
            forms, given = _flattened(self._types, args)
            usual = ""
        where: tuple[ClientSession, Device] | None = None
        values: list[Any] = []
        special: dict[int, str] = {}
        for place, (form, arg) in enumerate(zip(forms, given, strict=True)):
            if form == TENSOR_MAP:
                base = arg[0]
                if where is None:
                    where = base._session, base._meta.device
                check_tensor(name, place, base, *where)
                values.append([base._id, *arg[1:]])
            elif form == ADDRESS:
                tensor = arg.tensor if arg.__class__ is Pointer else arg
                if isinstance(tensor, Tensor):
                    if where is None:
                        where = place_of(_tensors(given)) or (tensor._session, tensor._meta.device)
                    if tensor._session is not where[0] or tensor._meta.device is not where[1]:
                        check_tensor(name, place, tensor, *where)
                    values.append(tensor._id)
                elif tensor is None:
                    special[place] = NULL
                else:
                    special[place] = INTEGER
                    values.append(_address(name, place, tensor))
            else:
                values.append(_value(form, arg))
                if form == "h":
                    special[place] = BYTES
        if special or not usual:
            usual = "".join([special.get(place, form) for place, form in enumerate(forms)])
        if where is None:
            session = current_session()
            where = session, current_gpu(session, name)
        return usual, values, where


def _tensors(args: Sequence[Any]) -> list[Any]:
    return [arg.tensor if arg.__class__ is Pointer else arg for arg in args]


def _form_of(kind: str) -> str:
    """Return the form of an argument by Triton's type; ``h`` for bfloat16, whose bytes are made here."""
    if kind[0] == "*":
        return ADDRESS
    if kind == "nvTmaDesc":
        return TENSOR_MAP
    if kind == "bf16":
        return "h"
    return FLOAT if kind.startswith(("fp", "f32")) else INTEGER


def _value(form: str, arg: Any) -> Any:
    if form == INTEGER:
        return int(arg)
    if form == FLOAT:
        return float(arg)
    bits: bytes = struct.pack("<f", float(np.float32(arg)))[2:]
    return bits


def _address(name: str, place: int, arg: Any) -> int:
    if isinstance(arg, int):
        return arg
    raise ArgumentTypeError(f"{name}: argument {place + 1} must be a tensor on a GPU, not {type(arg).__name__}")


def _flattened(types: Sequence[Any], args: Sequence[Any]) -> tuple[list[str], list[Any]]:
    """Return forms and arguments of a kernel that takes tuples."""
    pairs = list(_pairs(types, args))
    return [_form_of(kind) for kind, _ in pairs], [arg for _, arg in pairs]


def _pairs(types: Sequence[Any], args: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for kind, arg in zip(types, args, strict=True):
        if isinstance(kind, Descriptor):
            yield from kind.parameters(arg)
        elif isinstance(kind, tuple):
            yield from _pairs(kind, arg)
        elif kind != "constexpr":
            yield kind, arg
