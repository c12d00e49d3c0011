"""Whether operands are where an operation reaches them: on one device, but for what a GPU may read from the host.

``contract`` asks for every call whose operands are not all on one device. Knows no shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from telegrad_protocol.errors import DeviceError
from telegrad_protocol.meta import Device, Meta


class Declared(Protocol):
    """What decides which operands may be on the CPU beside those of a GPU: see ``contract.Op``."""

    public: str
    tensor_positions: tuple[int, ...]
    mutates: tuple[int, ...]
    from_host: tuple[int, ...]


def device_beside_host(op: Declared, bound: Sequence[Any]) -> Device | None:
    """Return the device of the operands if others are on the CPU beside it; None if all are on one device."""
    device: Device | None = None
    for position in op.tensor_positions:
        value = bound[position]
        if value.__class__ is Meta:  # as most operands are, so that nothing is made of them to look through
            if value.device is not device:
                if device is not None:
                    return shared_device(op, bound)
                device = value.device
            continue
        for meta in value if isinstance(value, (tuple, list)) else ():
            if meta.__class__ is Meta and meta.device is not device:
                if device is not None:
                    return shared_device(op, bound)
                device = meta.device
    return None


def shared_device(op: Declared, bound: Sequence[Any]) -> Device:
    """Return the device of all operands but those on the CPU that may stand beside a GPU's.

    They are the tensors of ``from_host`` parameters, and 0-d tensors, unless they are written or one of a list of a
    public operation, which becomes the result. Raises DeviceError where the others are on several devices.
    """
    placed: dict[Device, None] = {}
    for position in op.tensor_positions:
        value = bound[position]
        is_list = isinstance(value, (tuple, list))
        takes_numbers = position not in op.mutates and (not is_list or op.public.startswith("_"))
        for meta in value if is_list else (value,):
            if not isinstance(meta, Meta):
                continue
            may_be_on_host = position in op.from_host or (takes_numbers and not meta.ndim)
            if meta.device.type != "cpu" or not may_be_on_host:
                placed[meta.device] = None
    if len(placed) > 1:
        raise different_devices(op.public, *placed)
    return next(iter(placed))


def check_results(name: str, device: Device, results: Any) -> None:
    """Refuse results that the operands on the CPU, which may stand beside those of ``device``, would draw there."""
    for meta in results if isinstance(results, tuple) else (results,):
        if meta is not None and meta.device is not device:
            raise different_devices(name, device, meta.device)


def different_devices(name: str, first: Device, second: Device, *more: Device) -> DeviceError:
    """Return the error of operands that are on several devices, in PyTorch's words."""
    return DeviceError(
        f"{name}: Expected all tensors to be on the same device, but found at least two devices, {first} and {second}!"
    )
