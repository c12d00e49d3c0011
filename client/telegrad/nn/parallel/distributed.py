"""``DistributedDataParallel``, which is refused: a program is one process here, whose session has the GPUs."""

from __future__ import annotations

from typing import Any

from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import NotSupportedError

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Refuses to be made: use ``DataParallel``, or the module itself on one GPU."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, **options: Any) -> None:
        raise NotSupportedError(
            "DistributedDataParallel: programs of several processes are not served; use nn.DataParallel(module) on a "
            "session with several GPUs (connect(gpus=N)), or the module itself"
        )
