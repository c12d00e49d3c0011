"""The GPUs of a session: which one is current, what they are, and waiting for them.

``cuda`` without an index, and functions that are given no device, mean the current GPU. It belongs to a thread: the
first GPU until the thread chooses another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, device_name, gpu_of, set_current_gpu
from telegrad._session.parts.capturing import refuse as refuse_in_capture
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, DeviceError
from telegrad_protocol.meta import Device

__all__ = [
    "DeviceProperties", "can_device_access_peer", "current_device", "device", "device_count", "device_of",
    "get_device_capability", "get_device_name", "get_device_properties", "init", "is_available", "is_bf16_supported",
    "is_initialized", "set_device", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether the server has a GPU."""
    return current_session().first_gpu is not None


def init() -> None:
    """Do nothing: the server has its GPUs ready. PyTorch's programs may call it."""


def _lazy_init() -> None:
    """Do nothing, as ``init``; libraries call it before they ask for a device."""


def _lazy_call(callable: Callable[[], Any], **options: Any) -> None:
    """Call it now: in PyTorch it waits until the GPU is there, which it always is here."""
    callable()


def _is_in_bad_fork() -> bool:
    """Whether this is a process that cannot use GPUs because of its parent: never, since the server has them."""
    return False


def _is_compiled() -> bool:
    """Whether GPUs can be used, as ``is_available``: what serves them is the server's."""
    return is_available()


def is_initialized() -> bool:
    """Whether GPUs can be used: wherever there is one."""
    return is_available()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current GPU computes in bfloat16: from compute capability 8 on, earlier ones by converting."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def device_count() -> int:
    """How many GPUs the session can use."""
    return sum(device.type == "cuda" for device in current_session().devices)


def current_device() -> int:
    """Index of the calling thread's current GPU; raises DeviceError if the server has none."""
    return gpu_of("current_device", None).index  # type: ignore[return-value]  # a GPU has an index


def _is_none(device: Any) -> bool:
    """Tell whether no GPU is named: by None, or by a negative index, which PyTorch's functions ignore."""
    return device is None or (isinstance(device, int) and not isinstance(device, bool) and device < 0)


def set_device(device: DeviceLike) -> None:
    """Make a GPU the calling thread's current one; a negative index changes nothing."""
    if device is None:
        raise ArgumentTypeError("set_device: expected a GPU, such as 1 or 'cuda:1', not None")
    if not _is_none(device):
        set_current_gpu(gpu_of("set_device", device))


class device:  # PyTorch's name
    """Makes a GPU the calling thread's current one within the block; does nothing for None or a negative index."""

    def __init__(self, device: DeviceLike) -> None:
        self.gpu = None if _is_none(device) else gpu_of("device", device)
        self.previous: list[Device | None] = []

    @property
    def idx(self) -> int:
        """The index of the GPU, -1 if there is none."""
        return -1 if self.gpu is None or self.gpu.index is None else self.gpu.index

    def __enter__(self) -> None:
        if self.gpu is not None:
            self.previous.append(set_current_gpu(self.gpu))

    def __exit__(self, *_: object) -> None:
        if self.gpu is not None:
            set_current_gpu(self.previous.pop())


class device_of(device):
    """Makes the GPU of a tensor the current one within the block; does nothing for a tensor on a CPU."""

    def __init__(self, obj: Tensor) -> None:
        super().__init__(obj.device if obj.is_cuda else None)


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether ``device`` can copy from and to the memory of ``peer_device`` without going through the host's memory."""
    first, second = (gpu_of("can_device_access_peer", one) for one in (device, peer_device))
    return bool(current_session().query("can_access_peer", first.name, second.name))


class DeviceProperties:
    """What a device is: ``name``, ``total_memory`` in bytes, ``major`` and ``minor`` of a GPU's capability, and more.

    The attributes are those of PyTorch's object that the server tells. They can also be read by name in brackets.
    """

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = dict(told)
        capability = told.get("capability")
        if capability is not None:
            self._told["major"], self._told["minor"] = self._told["capability"] = tuple(capability)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_told"][name]
        except KeyError:
            raise AttributeError(f"the server does not tell the property {name!r} of its device") from None

    def __getitem__(self, name: str) -> Any:
        return self._told[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._told})

    def __repr__(self) -> str:
        shown = {**self._told, "total_memory": f"{self._told['total_memory'] >> 20}MB"}
        shown.pop("capability", None)
        listed = ", ".join(
            f"{name}={value!r}" if name == "name" else f"{name}={value}" for name, value in shown.items()
        )
        return f"DeviceProperties({listed})"


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """Return what a GPU is; on a server without a GPU, what its CPU is. One round trip."""
    return DeviceProperties(current_session().query("device_properties", device_name(device)))


def get_device_name(device: DeviceLike = None) -> str:
    """The device's name."""
    return str(get_device_properties(device).name)


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """The CUDA compute capability; raises DeviceError for a CPU."""
    properties = get_device_properties(device)
    try:
        return properties.major, properties.minor
    except AttributeError:
        raise DeviceError(f"get_device_capability: {device_name(device)} is no GPU") from None


def synchronize(device: DeviceLike = None) -> None:
    """Wait until a GPU has done everything submitted to it so far; raises what failed."""
    refuse_in_capture("synchronize")
    session = current_session()
    session.synchronize("" if device is None and session.first_gpu is None else device_name(device))
