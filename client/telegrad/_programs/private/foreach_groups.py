"""``torch.utils._foreach_utils``: tensors that one call of a function of lists may take together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device

Groups = dict[tuple[Device | None, DType | None], tuple[list[list[Tensor | None]], list[int]]]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Return the devices on which functions of lists are faster than loops."""
    return ["cuda"]


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _has_foreach_support(tensors: Sequence[Any], device: Device) -> bool:
    """Whether functions of lists take these tensors."""
    return device.type == "cuda" and all(tensor is None or type(tensor) is Tensor for tensor in tensors)


_device_has_foreach_support = _has_foreach_support


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> Groups:
    """Return parts of lists of equal length, by device and type of the first list's tensors, and their places."""
    groups: Groups = {}
    for place, first in enumerate(tensorlistlist[0]):
        key = (None, None) if first is None else (first.device, first.dtype)
        lists, places = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
        for own, given in zip(lists, tensorlistlist, strict=True):
            if given:
                own.append(given[place])
        if with_indices:
            places.append(place)
    return groups
