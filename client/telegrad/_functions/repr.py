"""``repr`` and ``format`` of a tensor: fetch the elements that the text shows.

``_tensor.formatting`` makes the text of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad._ops.functions import function
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.formatting import EdgeRanges, edge_ranges, format_tensor
from telegrad._tensor.tensor import Tensor

from .reading import item, read_array


def _repr(self: Tensor) -> str:
    ranges = edge_ranges(self._meta.shape)
    fn = self.grad_fn
    return format_tensor(
        read_array(self) if ranges is None else _read_edges(self, ranges),
        dtype=self.dtype,
        device=str(self.device),
        shape=tuple(self._meta.shape),
        requires_grad=self.requires_grad,
        grad_fn=fn.name() if fn else None,
        is_parameter=type(self).__name__ == "Parameter",
        summarized=ranges is not None,
    )


def _read_edges(tensor: Tensor, ranges: EdgeRanges) -> np.ndarray[Any, Any]:
    """Return the elements at the edges of a large tensor, cut out on the server so that no others travel."""
    with no_grad():
        edges = tensor.detach()
        for dim, parts in enumerate(ranges):
            if len(parts) > 1:
                edges = function("cat")([edges.narrow(dim, start, stop - start) for start, stop in parts], dim)
    return read_array(edges)


def _format(self: Tensor, spec: str) -> str:
    return format(repr(self) if self._meta.ndim or type(self) is not Tensor else item(self), spec)


METHODS: dict[str, Any] = {"__repr__": _repr, "__format__": _format}
