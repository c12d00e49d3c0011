"""Writing selected elements of expanded tensors, which PyTorch deprecates and does.

``masked_fill_``, ``index_fill_`` and ``index_put_`` write into the part of the target that is stored once, at every
place of which one of the elements is selected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.layout import overlaps_itself
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import PUBLIC


def is_expanded(meta: Meta) -> bool:
    """Tell whether elements share memory, and only because dimensions were expanded."""
    return overlaps_itself(meta.shape, meta.strides) and not overlaps_itself(*_stored(meta))


def _stored(meta: Meta) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes = [size if stride else min(size, 1) for size, stride in zip(meta.shape, meta.strides, strict=True)]
    return tuple(sizes), meta.strides


def with_expanded_targets(miss: Callable[..., Any], public: str, call: Callable[[str], Any]) -> Callable[..., Any]:
    """Add expanded targets to a function's calls whose patterns are not known; ``call`` returns functions by name."""

    def select(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if _writes_expanded(public, args, kwargs):
            return _write(public, args, kwargs, call), None
        return miss(args, kwargs)  # type: ignore[no-any-return]

    return select


def _writes_expanded(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    target = args[0] if args else kwargs.get("input")
    if not isinstance(target, Tensor) or not is_expanded(target._meta):
        return False
    note(
        f"Use of {public} on expanded tensors is deprecated. Please clone() the tensor before performing this "
        "operation. This also applies to advanced indexing e.g. tensor[mask] = scalar"
    )
    return True


def _write(public: str, args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[[str], Any]) -> Any:
    bound = PUBLIC[public][0].bind(args, kwargs)
    target = bound[0]
    stored = call("as_strided")(target, *_stored(target._meta), target._meta.offset)
    _WRITERS[public](call, target, stored, *bound[1:])
    return target


def _fill_masked(call: Any, target: Tensor, stored: Tensor, mask: Tensor, value: Any) -> None:
    selected = call("expand")(mask, target.shape)
    for dim, stride in enumerate(target._meta.strides):
        if not stride:
            selected = call("any")(selected, dim, keepdim=True)
    call("masked_fill_")(stored, selected, value)


def _fill_indexed(call: Any, target: Tensor, stored: Tensor, dim: int, index: Tensor, value: Any) -> None:
    places = index if target._meta.strides[dim] else call("zeros_like")(index)
    call("index_fill_")(stored, dim, places, value)


def _put(call: Any, target: Tensor, stored: Tensor, indices: Any, values: Any, accumulate: bool = False) -> None:
    numbers = call("arange")(stored.numel(), device=stored.device)
    everywhere = call("expand")(call("view")(numbers, stored.shape), target.shape)
    places = everywhere[tuple([slice(None) if index is None else index for index in indices])]
    if not isinstance(values, Tensor):
        values = call("full")((), values, dtype=stored.dtype, device=stored.device)
    call("put_")(stored, places, call("expand")(values, places.shape), accumulate)


_WRITERS: Final[dict[str, Callable[..., None]]] = {
    "masked_fill_": _fill_masked, "index_fill_": _fill_indexed, "index_put_": _put,
}  # fmt: skip
SELECTING: Final = frozenset(_WRITERS)
"""Functions that write selected elements."""
