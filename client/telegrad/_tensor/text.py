"""The text of a tensor: reads what is shown of it, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from telegrad._session import modes as _modes

from . import arrays as _arrays
from .printing import edge_index, format_tensor

if TYPE_CHECKING:
    from .tensor import Tensor


def describe(tensor: Tensor) -> str:
    """What PyTorch prints of such a tensor."""
    plan = edge_index(tensor._meta.shape)
    fn = tensor.grad_fn
    return format_tensor(
        _shown(tensor, plan),
        dtype=tensor.dtype,
        device=str(tensor.device),
        shape=tuple(tensor._meta.shape),
        requires_grad=tensor.requires_grad,
        grad_fn=fn.name() if fn else None,
        is_parameter=type(tensor).__name__ == "Parameter",
        summarized=plan is not None,
    )


def _shown(tensor: Tensor, plan: Any) -> np.ndarray[Any, Any]:
    """The elements that are printed: all of them, or the edges."""
    if plan is None:
        return _arrays.array_of(*tensor._session.read(tensor._id))
    with _modes.no_grad():
        shown = tensor.detach()
        for dim, ranges in enumerate(plan):
            if len(ranges) > 1:
                shown = _cat([shown.narrow(dim, start, stop - start) for start, stop in ranges], dim)
    return _arrays.array_of(*shown._session.read(shown._id))


def _cat(parts: list[Tensor], dim: int) -> Tensor:
    from telegrad._ops import functions as _functions

    return _functions.function("cat")(parts, dim)  # type: ignore[no-any-return]
