"""Modules and kernels of one session, and what a launch sends. Knows no compiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from telegrad._session.session import ClientSession
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import ptx
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DeviceError
from telegrad_protocol.kernel_messages import (
    ADDRESS,
    BYTES,
    FLOAT,
    INTEGER,
    MAX_CODE_BYTES,
    NULL,
    DefineKernel,
    LaunchKernel,
    LoadModule,
    SetKernelAttribute,
)
from telegrad_protocol.meta import Device

FIRST_LAUNCHES = 8
"""A batch of so many is sent where the GPU may have nothing else to do: it would wait for more, and launches are long.

Batches grow with what was sent before them, since each has a cost of its own.
"""


class RemoteModule:
    """Code that a device of a session has loaded, or is about to; freed with the last reference."""

    def __init__(
        self,
        session: ClientSession,
        device: Device,
        kind: str,
        code: bytes,
        *,
        file: str = "",
        line: int = 1,
        options: Sequence[str] = (),
        headers: dict[str, str] | None = None,
        expressions: Sequence[str] = (),
    ) -> None:
        if len(code) > MAX_CODE_BYTES:
            raise ArgumentError(f"module: {len(code)} bytes of code; at most {MAX_CODE_BYTES} can be sent")
        if device.type != "cuda":
            raise DeviceError(f"module: kernels run on GPUs, not on {device}")
        self.session, self.device = session, device
        self.id = session.new_id()
        load = LoadModule(
            self.id, session.sites.current(), device.name, kind, code, file, line, tuple(options), headers or {},
            tuple(expressions),
        )  # fmt: skip
        session.submit(load, thread.modes)
        session.flush()

    def __del__(self) -> None:
        if hasattr(self, "id"):
            self.session.free(self.id)


class RemoteKernel:
    """A function of a module. ``attributes`` are what it needs, by CuPy's names.

    ``written`` are the places of parameters whose memory it writes to; None leaves it to the server to look, with
    ``read_only`` for what is not written in any case. Waits for the server: that is where code that does not compile
    or load is found.
    """

    def __init__(
        self,
        module: RemoteModule,
        name: str,
        written: Iterable[int] | None = None,
        read_only: Iterable[int] = (),
    ) -> None:
        session = self.session = module.session
        self.module, self.name = module, name
        self.id = session.new_id()
        places = None if written is None else tuple(sorted(written))
        define = DefineKernel(self.id, session.sites.current(), module.id, name, places, tuple(read_only))
        session.submit(define, thread.modes)
        self.attributes: dict[str, int] = session.query("kernel_attributes", self.id)

    def set_attribute(self, name: str, value: int) -> None:
        """Set an attribute that can be set."""
        session = self.session
        session.submit(SetKernelAttribute(self.id, session.sites.current(), name, int(value)), thread.modes)
        self.attributes[name] = int(value)

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        forms: str,
        args: list[Any],
        shared: int = 0,
        cluster: tuple[int, int, int] | None = None,
        flags: int = 0,
    ) -> None:
        """Launch on the calling thread's current stream; see ``LaunchKernel``."""
        session = self.session
        site = session.sites.current()
        session.send_within(FIRST_LAUNCHES)
        session.submit(LaunchKernel(self.id, site, grid, block, forms, args, shared, cluster, flags), thread.modes)

    def __del__(self) -> None:
        if hasattr(self, "attributes"):
            self.session.free(self.id)


def loaded_of(owner: object, session: ClientSession) -> dict[Device, Any]:
    """Return what the devices of a session have loaded for an object of the program; freed with either of them."""
    loaded = session.kernels.get(owner)
    if loaded is None:
        loaded = session.kernels[owner] = {}
    return loaded


class CompiledKernel:
    """A kernel that was compiled here, which devices of sessions load when they first launch it.

    ``text`` is the PTX that it was compiled to on the way, where that is known.
    """

    def __init__(self, name: str, kind: str, code: bytes, text: str) -> None:
        self.name, self._kind, self._code = name, kind, code
        entry = ptx.entries(text).get(name) if text else None
        self.written = None if entry is None else entry.written
        self.parameters = None if entry is None else entry.parameters

    def on(self, session: ClientSession, device: Device) -> RemoteKernel:
        """Return the kernel on a device of a session; waits for the server the first time."""
        loaded = loaded_of(self, session)
        kernel: RemoteKernel | None = loaded.get(device)
        if kernel is None:
            module = RemoteModule(session, device, self._kind, self._code)
            kernel = loaded[device] = RemoteKernel(module, self.name, self.written)
        return kernel


def encode(kernel: str, session: ClientSession, device: Device, args: Iterable[Any]) -> tuple[str, list[Any]]:
    """Return the forms of arguments, and what stands for them in a launch.

    Tensors are addresses, None is a null pointer; NumPy's scalars and ctypes' values go by their bytes, Python's
    numbers take the types of their parameters. Raises DeviceError for a tensor that is not on ``device``.
    """
    forms = ""
    values: list[Any] = []
    for arg in args:
        kind = arg.__class__
        if kind is int:
            forms += INTEGER
            values.append(arg)
        elif isinstance(arg, Tensor):
            if arg._session is not session or arg._meta.device is not device:
                check_tensor(kernel, len(forms), arg, session, device)
            forms += ADDRESS
            values.append(arg._id)
        elif kind is float:
            forms += FLOAT
            values.append(arg)
        elif arg is None:
            forms += NULL
        else:
            form, value = _encode_value(kernel, len(forms), arg)
            forms += form
            values.append(value)
    return forms, values


def _encode_value(kernel: str, place: int, arg: Any) -> tuple[str, Any]:
    if isinstance(arg, (bool, int)) and not isinstance(arg, np.generic):
        return INTEGER, int(arg)
    if isinstance(arg, float) and not isinstance(arg, np.generic):
        return FLOAT, arg
    if isinstance(arg, complex) and not isinstance(arg, np.generic):
        return BYTES, np.complex128(arg).tobytes()
    if isinstance(arg, np.generic):
        return BYTES, arg.tobytes()
    if hasattr(arg, "__cuda_array_interface__"):
        raise DeviceError(
            f"{kernel}: argument {place + 1} is in the memory of a GPU of this machine, and the kernel runs on the "
            "server; make a tensor of its elements"
        )
    if isinstance(arg, np.ndarray):
        raise ArgumentTypeError(f"{kernel}: argument {place + 1} is an array on this machine; make a tensor of it")
    try:
        return BYTES, bytes(memoryview(arg))  # structures and numbers of ctypes
    except TypeError:
        raise ArgumentTypeError(
            f"{kernel}: argument {place + 1} is {type(arg).__name__}; tensors, numbers, NumPy's scalars, None, and "
            "structures of ctypes can be passed"
        ) from None


def has_elements(tensor: Tensor) -> bool:
    """Tell whether a tensor is in a session, and not one of the meta device or a fake one."""
    return not isinstance(tensor._session, ShapeSession)


def check_tensor(kernel: str, place: int, tensor: Tensor, session: ClientSession, device: Device) -> None:
    """Refuse a tensor that the kernel cannot reach."""
    if not has_elements(tensor):
        raise DeviceError(f"{kernel}: argument {place + 1} is {tensor._meta} on {tensor.device}, and has no elements")
    if tensor._session is not session:
        tensor._session._require_open()
        raise DeviceError(f"{kernel}: tensors of different sessions")
    if tensor._meta.device is not device:
        raise DeviceError(
            f"{kernel}: argument {place + 1} is {tensor._meta} on {tensor.device}, and the kernel runs on {device}; "
            f"bring it there with to('{device}')"
        )


_USUAL_SIZES = ([int], [int, int], [int, int, int])


def three(kernel: str, what: str, sizes: Any) -> tuple[int, int, int]:
    """Return one, two or three sizes as three."""
    if sizes.__class__ is tuple and [*map(type, sizes)] in _USUAL_SIZES:
        return (*sizes, 1, 1)[:3]
    given = (sizes,) if isinstance(sizes, (int, np.integer)) else tuple(sizes)
    if not 1 <= len(given) <= 3 or not all(isinstance(size, (int, np.integer)) for size in given):
        raise ArgumentTypeError(f"{kernel}: {what}: expected one to three whole numbers, not {sizes!r}")
    x, y, z = (*map(int, given), 1, 1)[:3]
    return x, y, z


def place_of(args: Iterable[Any]) -> tuple[ClientSession, Device] | None:
    """Return the session and the device of the first tensor on a GPU; None where there is none."""
    for arg in args:
        if isinstance(arg, Tensor):
            tensor = arg
        elif type(arg).__name__ == "TensorDescriptor":
            tensor = arg.base
        else:
            continue
        if tensor._meta.device.type == "cuda" and has_elements(tensor):
            return tensor._session, tensor._meta.device
    return None
