"""Devices as users name them: by a string such as ``"cuda:0"``, by the index of a GPU, or by a ``Device``.

``cuda`` without an index is the current GPU of the calling thread, as in PyTorch: it becomes a device with an index
where it is used, so that metas and instructions only have such devices.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from telegrad_protocol.errors import ArgumentTypeError, DeviceError
from telegrad_protocol.meta import CURRENT_GPU, Device

from .current import current_session
from .session import ClientSession
from .shapes.shape_session import meta_session
from .thread_modes import thread

DeviceLike: TypeAlias = str | Device | int | None
"""None stands for the default device, or for no change of device, as the function says."""


def as_device(device: Any) -> Device:
    """Return the device that ``device`` names, which may be ``cuda`` without an index; an integer is a GPU's index."""
    if isinstance(device, (str, Device, int)) and not isinstance(device, bool):
        return Device(device)
    raise ArgumentTypeError(f"a device is named by a string such as 'cuda:0', not by {device!r}")


def session_for(device: Any) -> ClientSession:
    """Return the session of a new tensor on a device; None is where the thread makes tensors if none is named."""
    if device is None:
        device = thread.modes.default_device
    elif isinstance(device, str):
        device = Device(device)
    return meta_session if isinstance(device, Device) and device.type == "meta" else current_session()


def require_device(device: Device, session: ClientSession, function: str = "") -> Device:
    """Return the device of the session's server that ``device`` stands for.

    Raises DeviceError, in the name of ``function``, if the server does not have it.
    """
    is_chosen = device is CURRENT_GPU and thread.modes.gpu is not None
    if device is CURRENT_GPU:
        device = thread.modes.gpu or session.first_gpu or device
    device = device.place
    if device not in session.devices:
        prefix = f"{function}: " if function else ""
        remedy = "; choose another current GPU by cuda.set_device()" if is_chosen else ""
        raise DeviceError(
            f"{prefix}device {device} is not there; the server has {', '.join(map(str, session.devices))}{remedy}"
        )
    return device


def default_device(session: ClientSession) -> Device:
    """Return where this thread's new tensors of the session are made if no device is named."""
    return require_device(thread.modes.default_device or session.default_device, session)


def device_name(device: DeviceLike) -> str:
    """Return the name of a device of the current session; None is the current GPU, or the CPU if there is no GPU."""
    session = current_session()
    if device is None:
        return session.default_device.name if session.first_gpu is None else current_gpu(session).name
    return require_device(as_device(device), session).name


def current_gpu(session: ClientSession, function: str = "") -> Device:
    """Return the calling thread's current GPU; raises DeviceError if the server has none of its index."""
    return require_device(CURRENT_GPU, session, function)


def gpu_of(function: str, device: DeviceLike) -> Device:
    """Return a GPU of the current session; None is the current one.

    Raises DeviceError, in the name of ``function``, if there is no such GPU, or for a device of another type.
    """
    session = current_session()
    if session.first_gpu is None:
        raise DeviceError(f"{function}: the server has no GPU; it has {', '.join(map(str, session.devices))}")
    gpu = current_gpu(session, function) if device is None else require_device(as_device(device), session, function)
    if gpu.type != "cuda":
        raise DeviceError(f"{function}: expected a GPU, not {gpu}")
    return gpu


def set_current_gpu(gpu: Device | None) -> Device | None:
    """Make a GPU this thread's current one, None for the first; return what was chosen before.

    The first GPU is never chosen by its index, so that a program which names it has the modes of one that does not.
    """
    modes = thread.modes
    thread.modes = modes.but(gpu=None if gpu is current_session().first_gpu else gpu)
    return modes.gpu


def __enter__(self: Device) -> Device:
    """Make tensors on this device within the block where no device is named; it belongs to the calling thread."""
    require_device(self, session_for(self), "device")
    modes = thread.modes
    thread.entered = (*thread.entered, modes.default_device)
    thread.modes = modes.but(default_device=self)
    return self


def __exit__(self: Device, *_: object) -> None:
    """Restore the default device of the calling thread."""
    *outer, before = thread.entered
    thread.entered = tuple(outer)
    thread.modes = thread.modes.but(default_device=before)


for _method in (__enter__, __exit__):
    _method.__module__, _method.__qualname__ = Device.__module__, f"Device.{_method.__name__}"
    setattr(Device, _method.__name__, _method)
