"""``save`` and ``load``: tensors and nested containers of them in safetensors files."""

from __future__ import annotations

import os
from typing import Any

from telegrad._session import modes as _modes
from telegrad_protocol.errors import DeviceError
from telegrad_protocol.meta import Device, Meta

from . import serialization as _serialization
from .serialization import RawTensor
from .tensor import Tensor


def save(obj: Any, f: str | os.PathLike[str]) -> None:
    """Write tensors, and dicts, lists, tuples, numbers and strings around them, to a safetensors file."""
    _serialization.save(obj, f, to_raw=_to_raw)


def load(f: str | os.PathLike[str], map_location: str | Device | None = None) -> Any:
    """Read what ``save`` wrote, or any safetensors file; tensors go to ``map_location``, else the default device."""
    session = _modes.current_session()
    device = session.default_device if map_location is None else Device(map_location)
    if device not in session.devices:
        raise DeviceError(f"load: device {device} is not there; the server has {', '.join(map(str, session.devices))}")

    def from_raw(raw: RawTensor) -> Tensor:
        meta = Meta.of(raw.shape, raw.dtype, device)
        return Tensor(session, session.upload(meta, memoryview(raw.data).cast("B"), session.sites.current()), meta)

    return _serialization.load(f, from_raw=from_raw)


def _to_raw(thing: Any) -> RawTensor | None:
    if not isinstance(thing, Tensor):
        return None
    dtype, shape, data = thing._session.read(thing._id)
    return RawTensor(dtype, shape, data)
