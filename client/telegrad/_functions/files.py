"""``save`` and ``load``: tensors and nested containers of them in safetensors files."""

from __future__ import annotations

import os
from typing import Any

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, as_device, default_device, require_device
from telegrad._tensor import safetensors_files as _safetensors_files
from telegrad._tensor.safetensors_files import RawTensor
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.meta import Meta


def save(obj: Any, f: str | os.PathLike[str]) -> None:
    """Write a tensor, or nested dicts, lists and tuples of tensors, numbers and strings, to a safetensors file."""
    _safetensors_files.save(obj, f, to_raw=_to_raw)


def load(f: str | os.PathLike[str], map_location: DeviceLike = None) -> Any:
    """Read what ``save`` wrote, or any safetensors file; tensors go to ``map_location``, else the default device."""
    session = current_session()
    if map_location is None:
        device = default_device(session)
    else:
        device = require_device(as_device(map_location), session, "load")

    def from_raw(raw: RawTensor) -> Tensor:
        meta = Meta.of(raw.shape, raw.dtype, device)
        return Tensor(session, session.upload(meta, memoryview(raw.data).cast("B"), session.sites.current()), meta)

    return _safetensors_files.load(f, from_raw=from_raw)


def _to_raw(value: Any) -> RawTensor | None:
    if not isinstance(value, Tensor):
        return None
    dtype, shape, data = value._session.read(value._id)
    return RawTensor(dtype, shape, data)
