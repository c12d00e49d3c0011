"""Which devices each worker has: what ``TELEGRAD_DEVICES`` says, and the two names of a device. Knows no machine.

A GPU has a name on the node, which operators see (``cuda:2``), and one in its worker and its sessions (``cuda:0``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

ALL: Final = "all"
"""One worker with every GPU, or with the CPU where there is none."""
Groups: TypeAlias = tuple[tuple[str, ...], ...]
"""By worker, the names of its devices on the node."""

_DEVICE: Final = re.compile(r"cpu|cuda:\d+")


def split_groups(value: Any) -> Any:
    """``"cuda:0,cuda:1;cuda:2"`` as lists of names; a sequence of such texts, one a worker, too."""
    texts = value.split(";") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    split = [_names(text) if isinstance(text, str) else text for text in texts]
    return [group for group in split if group]


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def checked_groups(groups: Groups) -> Groups:
    """``groups`` with every name in full; ``ValueError`` for a name that is none, or that is listed twice."""
    if groups == ((ALL,),):
        return groups
    named = tuple(tuple("cuda:0" if device == "cuda" else device for device in group) for group in groups)
    for device in chain.from_iterable(named):
        if not _DEVICE.fullmatch(device):
            raise ValueError(
                f"expected 'cpu' or 'cuda:N', separated by commas, got {device!r}; "
                "';' separates workers, and 'all' stands alone"
            )
    for group in named:
        if len(set(group)) < len(group):
            raise ValueError(f"a device is listed twice: {_twice(group)}")
    gpus = [device for device in chain.from_iterable(named) if device != "cpu"]
    if len(set(gpus)) < len(gpus):
        raise ValueError(f"a device is listed twice: {_twice(gpus)} cannot belong to two workers")
    return named


def _twice(devices: Sequence[str]) -> str:
    return next(device for device in devices if devices.count(device) > 1)


@dataclass(frozen=True)
class DeviceGroup:
    """The devices of one worker: their names on the node, the default device first, with ``cpu`` among them.

    ``visible`` has what ``CUDA_VISIBLE_DEVICES`` calls its GPUs, in the order in which ``devices`` names them.
    """

    devices: tuple[str, ...]
    visible: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return sum(device != "cpu" for device in self.devices)

    @property
    def session_devices(self) -> tuple[str, ...]:
        """The names that the worker and its sessions have for ``devices``, in that order."""
        gpus = [device for device in self.devices if device != "cpu"]
        return tuple("cpu" if device == "cpu" else f"cuda:{gpus.index(device)}" for device in self.devices)

    def environment(self) -> dict[str, str]:
        """The variables that show CUDA the worker's GPUs and no others."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.visible)}

    def __str__(self) -> str:
        return ", ".join(self.devices)
