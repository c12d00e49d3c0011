"""Nested tensors in files of ``torch.save``: which function of PyTorch's makes them again, of which parts."""

from __future__ import annotations

import math
from typing import Any

from telegrad._functions.creation import tensor as new_tensor
from telegrad._tensor.tensor import Tensor

from .functions import run
from .methods import ENTERED
from .ragged import Ragged
from .strided import StridedNestedTensor
from .strided_methods import ENTERED as OF_STRIDED
from .tensor import NestedTensor

_ = ENTERED, OF_STRIDED


def call_that_makes(tensor: Any) -> tuple[str, str, tuple[Any, ...]]:
    """Return module, name and arguments of the function that makes a nested tensor."""
    if isinstance(tensor, NestedTensor):
        return "torch.nested._internal.nested_tensor", "_rebuild_njt", (_parts_of(tensor),)
    return "torch._utils", "_rebuild_nested_tensor", _lines_of(tensor)


def _parts_of(tensor: NestedTensor) -> dict[str, Any]:
    ragged = tensor._ragged
    bounds = (("min_seqlen", ragged.shortest), ("max_seqlen", ragged.longest))
    # PyTorch keeps the bounds as sizes of tensors without elements.
    known = {name: run("zeros", bound, 0) for name, bound in bounds if bound is not None}
    return {
        "values": tensor._values.detach(), "offsets": ragged.offsets, "lengths": ragged.lengths,
        "_ragged_idx": tensor._dim, "_metadata_cache": known, "requires_grad": tensor.requires_grad,
    }  # fmt: skip


def _lines_of(tensor: StridedNestedTensor) -> tuple[Tensor, ...]:
    sizes = [list(size) for size in tensor._sizes]
    strides = [[math.prod(size[d + 1 :]) for d in range(len(size))] for size in sizes]
    starts, place = [], 0
    for size in sizes:
        starts.append(place)
        place += math.prod(size)
    return tensor._buffer.detach(), new_tensor(sizes), new_tensor(strides), new_tensor(starts)


def jagged_from_file(parts: dict[str, Any]) -> NestedTensor:
    """Return the jagged tensor that a file has the parts of."""
    if not isinstance(parts, dict) or not isinstance(parts.get("values"), Tensor):
        raise TypeError("a nested tensor without values")
    known = parts.get("_metadata_cache") or {}
    shortest, longest = (int(known[name].shape[0]) if name in known else None for name in ("min_seqlen", "max_seqlen"))
    ragged = Ragged(parts["offsets"], parts.get("lengths"), shortest, longest)
    made = NestedTensor(parts["values"].detach(), ragged, int(parts.get("_ragged_idx", 1)))
    return made.requires_grad_() if parts.get("requires_grad") else made  # type: ignore[return-value]


def strided_from_file(buffer: Tensor, sizes: Tensor, strides: Tensor, starts: Tensor) -> StridedNestedTensor:
    """Return the nested tensor of the strided layout whose elements and sizes a file has; reads the latter."""
    shapes, steps, places = sizes.tolist(), strides.tolist(), starts.tolist()
    parts = [run("as_strided", buffer, *line) for line in zip(shapes, steps, places, strict=True)]
    return StridedNestedTensor.of(parts) if parts else StridedNestedTensor(buffer, [])
