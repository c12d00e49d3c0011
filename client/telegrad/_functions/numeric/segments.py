"""``segment_reduce``: one reduction for each of several stretches of a dimension."""

from __future__ import annotations

from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError, ShapeError
from telegrad_protocol.layout import wrap_dim

_IDENTITIES: Final = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
_SCATTERED_AS: Final = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Tensor:  # fmt: skip
    """Return the sum, mean, prod, max or min of each segment of dimension ``axis``.

    ``lengths`` has the segments' lengths in its last dimension, ``offsets`` where each begins and where the last ends;
    both have the dimensions of ``data`` before ``axis`` in front. ``initial`` takes part in every reduction; an empty
    segment gives it, or without it what is neutral, NaN for ``mean``. Unless ``unsafe``, it is checked that lengths add
    up to the dimension: one round trip.
    """
    if reduce not in _IDENTITIES:
        raise ArgumentError(f"segment_reduce: reduce must be one of {', '.join(_IDENTITIES)}, not {reduce!r}")
    if indices is not None:
        raise NotSupportedError("segment_reduce: indices are not supported, as in PyTorch; give lengths or offsets")
    if not data.is_floating_point():
        raise DTypeError(f"segment_reduce: expected floating-point elements, not {data._meta}")
    at = wrap_dim("segment_reduce", axis, data.ndim)
    ends, counts = _segments(data, lengths, offsets, at, unsafe)
    groups = counts.shape[-1]
    places = function("searchsorted")(ends, _positions(ends, data.shape[at]), right=True)
    spread = places.reshape([*places.shape, *[1] * (data.ndim - at - 1)]).expand(data.shape)
    start = _IDENTITIES[reduce] if initial is None else initial
    shape = [*data.shape[:at], groups + 1, *data.shape[at + 1 :]]  # the last takes what belongs to no segment
    sums = data.new_full(shape, start).scatter_reduce(at, spread, data, _SCATTERED_AS[reduce]).narrow(at, 0, groups)
    if reduce != "mean":
        return sums
    sizes = counts.reshape([*counts.shape, *[1] * (data.ndim - at - 1)]).to(data.dtype)
    return sums / (sizes if initial is None else sizes.clamp(min=1))


def _segments(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, at: int, unsafe: bool
) -> tuple[Tensor, Tensor]:
    """Return where the segments end, and how long they are: (..., segments)."""
    if (lengths is None) == (offsets is None):
        raise ArgumentError("segment_reduce: give the segments' lengths or their offsets, and not both")
    given = offsets if lengths is None else lengths
    if given is None or given.ndim != at + 1 or given.shape[:-1] != data.shape[:at]:
        raise ShapeError(f"segment_reduce: {given} does not have the dimensions of {data._meta} before {at}, and one")
    if lengths is None:
        return given.narrow(-1, 1, given.shape[-1] - 1).contiguous(), given.diff()
    ends = given.cumsum(-1)
    if not unsafe and not bool((given >= 0).all() & (given.sum(-1) == data.shape[at]).all()):
        raise ShapeError(
            f"segment_reduce: lengths must not be negative, and add up to {data.shape[at]}; or pass unsafe"
        )
    return ends, given


def _positions(ends: Tensor, length: int) -> Tensor:
    """Return the numbers of the elements, in each row: (..., length)."""
    numbers = function("arange")(length, dtype=ends.dtype, device=ends.device)
    return numbers.expand([*ends.shape[:-1], length]).contiguous()  # type: ignore[no-any-return]
