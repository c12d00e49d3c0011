"""The one place where ``Tensor`` gets the methods that compute.

The class itself (``_tensor.tensor``) is a handle that knows no operations. What the contracts declare as methods comes
first, then the hand-written methods of ``_functions``, which may replace a generated one of the same name. A module
there lists its methods in ``METHODS``, by the name that the class gives them. Nothing imports this module but the
package itself.
"""

from __future__ import annotations

from typing import Any

from telegrad_protocol.ops import PUBLIC
from telegrad_protocol.ops.namespaces import place_of

from . import autograd
from ._functions import (
    conversions,
    copying,
    creation,
    inplace_views,
    layouts,
    low_rank,
    operators,
    properties,
    reading,
    repr,
    special,
    tensor_types,
)
from ._functions.memory import addresses, dlpack, formats, process_sharing
from ._functions.numeric import distances, filling, numbers, splitting, statistics, uniques, view_copies
from ._ops import overriding
from ._ops.functions import UnmadeMethod
from ._tensor.tensor import Tensor
from .cuda import streams

_MODULES = (
    operators, overriding, reading, repr, special, copying, tensor_types, formats, conversions, creation, properties,
    process_sharing, inplace_views, layouts, low_rank, dlpack, addresses, distances, filling, numbers, splitting,
    statistics, uniques, view_copies, autograd, streams,
)  # fmt: skip


def _methods() -> dict[str, Any]:
    """Return all methods by name; those of the contracts that the class defines itself are left out."""
    methods: dict[str, Any] = {
        public: UnmadeMethod(public, public)
        for public, ops in PUBLIC.items()
        if public not in Tensor.__dict__ and not place_of(public)[0] and any(op.method for op in ops)
    }
    for module in _MODULES:
        methods |= module.METHODS
    return methods


for _name, _method in _methods().items():
    setattr(Tensor, _name, _method)
