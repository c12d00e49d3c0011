"""The accelerator of the current session's server, under ``torch.cuda``'s names.

Memory figures are those of the session; ``device`` may be an index, a name, or None for the first GPU. On a server
without a GPU the memory functions tell of its CPU memory, which the same allocator manages.
"""

from __future__ import annotations

from typing import Any

from telegrad_protocol.errors import DeviceError
from telegrad_protocol.meta import Device

from . import _modes

Place = int | str | Device | None


def _devices() -> list[Device]:
    return [d for d in _modes.current_session().devices if d.type == "cuda"]


def _name(device: Place) -> str:
    session = _modes.current_session()
    if device is None:
        return session.default_device.name
    place = Device("cuda", device) if isinstance(device, int) else Device(device)
    if place not in session.devices:
        raise DeviceError(f"device {place} is not there; the server has {', '.join(map(str, session.devices))}")
    return place.name


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


def get_device_properties(device: Place = None) -> dict[str, Any]:
    """Name, total memory and capability."""
    return _modes.current_session().query("device_properties", _name(device))  # type: ignore[no-any-return]


def get_device_name(device: Place = None) -> str:
    """The device's name."""
    return str(get_device_properties(device)["name"])


def get_device_capability(device: Place = None) -> tuple[int, int]:
    """The CUDA compute capability."""
    major, minor = get_device_properties(device)["capability"]
    return major, minor


def synchronize(device: Place = None) -> None:
    """Wait until everything submitted so far has run."""
    _modes.current_session().synchronize("" if device is None else _name(device))


def memory_stats(device: Place = None) -> dict[str, Any]:
    """The allocator's statistics for this session."""
    return _modes.current_session().query("memory_stats", _name(device))  # type: ignore[no-any-return]


def memory_summary(device: Place = None, abbreviated: bool = False) -> str:
    """The allocator's statistics as a table."""
    return str(_modes.current_session().query("memory_summary", _name(device), abbreviated))


def memory_snapshot(device: Place = None) -> dict[str, Any]:
    """Segments and blocks of the allocator."""
    return _modes.current_session().query("memory_snapshot", _name(device))  # type: ignore[no-any-return]


def memory_allocated(device: Place = None) -> int:
    """Bytes in tensors of this session."""
    return int(memory_stats(device)["allocated_bytes.all.current"])


def max_memory_allocated(device: Place = None) -> int:
    """The most bytes that were in tensors of this session at a time."""
    return int(memory_stats(device)["allocated_bytes.all.peak"])


def memory_reserved(device: Place = None) -> int:
    """Bytes that the allocator holds for all sessions."""
    stats = _modes.current_session().query("memory_stats", _name(device), False)
    return int(stats["reserved_bytes.all.current"])


def max_memory_reserved(device: Place = None) -> int:
    """The most bytes that the allocator held at a time."""
    stats = _modes.current_session().query("memory_stats", _name(device), False)
    return int(stats["reserved_bytes.all.peak"])


def reset_peak_memory_stats(device: Place = None) -> None:
    """Begin the peaks anew."""
    _modes.current_session().query("reset_peak", _name(device))


def reset_accumulated_memory_stats(device: Place = None) -> None:
    """Begin the counters anew."""
    _modes.current_session().query("reset_accumulated", _name(device))


def empty_cache() -> None:
    """Give memory that no tensor uses back to the device."""
    _modes.current_session().query("empty_cache", _name(None))


def mem_get_info(device: Place = None) -> tuple[int, int]:
    """Free and total bytes of the device."""
    free, total = _modes.current_session().query("mem_get_info", _name(device))
    return free, total


def manual_seed(seed: int) -> None:
    """Seed the GPU's generator."""
    from .random import seed_device

    seed_device(_name(None), seed)


manual_seed_all = manual_seed
