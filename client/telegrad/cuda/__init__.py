"""The accelerator of the current session's server, under ``torch.cuda``'s names.

``device`` may be an index, a name, or None for the default device. On a server without a GPU the functions about memory
tell of its CPU memory, which the same allocator manages.
"""

from __future__ import annotations

from typing import Any

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, device_name
from telegrad.random import seed_device
from telegrad_protocol.errors import DeviceError
from telegrad_protocol.errors import OutOfMemoryError as OutOfMemoryError
from telegrad_protocol.meta import Device

from . import amp as amp
from . import memory as memory
from . import tunable as tunable
from .memory import *  # noqa: F403  # as in torch.cuda, they are in both modules
from .streams import Event as Event
from .streams import Stream as Stream
from .streams import StreamContext as StreamContext
from .streams import current_stream as current_stream
from .streams import default_stream as default_stream
from .streams import set_stream as set_stream
from .streams import stream as stream


def _devices() -> list[Device]:
    return [d for d in current_session().devices if d.type == "cuda"]


def is_available() -> bool:
    """Whether the server has a GPU."""
    return bool(_devices())


def device_count() -> int:
    """How many GPUs the session can use."""
    return len(_devices())


def current_device() -> int:
    """Index of the GPU that is used where none is named."""
    devices = _devices()
    if not devices:
        raise DeviceError("current_device: the server has no GPU")
    return devices[0].index or 0


def get_device_properties(device: DeviceLike = None) -> dict[str, Any]:
    """Name, total memory and capability."""
    return current_session().query("device_properties", device_name(device))  # type: ignore[no-any-return]


def get_device_name(device: DeviceLike = None) -> str:
    """The device's name."""
    return str(get_device_properties(device)["name"])


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """The CUDA compute capability."""
    major, minor = get_device_properties(device)["capability"]
    return major, minor


def synchronize(device: DeviceLike = None) -> None:
    """Wait until everything submitted so far has run."""
    current_session().synchronize("" if device is None else device_name(device))


def manual_seed(seed: int) -> None:
    """Seed the GPU's generator."""
    seed_device(device_name(None), seed)


manual_seed_all = manual_seed
