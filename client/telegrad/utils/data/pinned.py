"""Samples and batches whose tensors are asked to be pinned: ``torch.utils.data._utils.pin_memory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .collate import rebuilt


def pin_memory(data: Any, device: Any = None) -> Any:
    """Return data with what has a method ``pin_memory`` pinned, in containers too; all else stays as it is.

    ``device`` changes nothing, since the server pins what it copies.
    """
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, str | bytes) or not isinstance(data, Mapping | Sequence):
        return data
    return rebuilt(data, pin_memory)
