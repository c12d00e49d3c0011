"""``telegrad.nested``: batches of tensors of other sizes, with PyTorch's names.

The jagged layout has one ragged dimension and is the one to use; the strided layout, PyTorch's default, is older and
has few operations. ``docs/nested.md`` tells what each of them has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._functions.creation import as_tensor as _as_tensor
from telegrad._functions.creation import tensor as _tensor
from telegrad._nested import building as _building
from telegrad._nested import methods as _methods
from telegrad._nested import strided_methods as _strided_methods
from telegrad._nested.ragged import Ragged as _Ragged
from telegrad._nested.strided import StridedNestedTensor as _StridedNestedTensor
from telegrad._nested.tensor import NestedTensor as _NestedTensor
from telegrad._ops.functions import function as _function
from telegrad._session.devices import DeviceLike
from telegrad._session.grad_mode import no_grad as _no_grad
from telegrad._tensor.layouts import Layout
from telegrad._tensor.layouts import jagged as _jagged
from telegrad._tensor.layouts import strided as _strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError as _ArgumentError
from telegrad_protocol.errors import ArgumentTypeError as _ArgumentTypeError

__all__ = [
    "as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor",
]  # fmt: skip

_ENTERED = (_methods.ENTERED, _strided_methods.ENTERED)


def _layout_of(layout: Layout | None, what: str = "nested tensors") -> Layout:
    chosen = _strided if layout is None else layout
    if chosen not in (_strided, _jagged):
        raise _ArgumentError(f"Specified layout is unsupported for {what}: {layout}")
    return chosen


def nested_tensor(
    tensor_list: Sequence[Any], *, dtype: DType | None = None, layout: Layout | None = None,
    device: DeviceLike = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Return a new leaf with copies of tensors, or of what ``tensor`` takes, as the elements of a batch."""
    is_jagged = _layout_of(layout) is _jagged
    with _no_grad():
        tensors = [_as_tensor(item).detach() for item in tensor_list]
        made = _of_list(tensors, dtype, device, is_jagged).detach()
    return made.requires_grad_() if requires_grad else made


def _of_list(tensors: list[Tensor], dtype: DType | None, device: DeviceLike, is_jagged: bool) -> Tensor:
    if is_jagged:
        return _building.of_list(tensors, dtype, device)
    if not tensors:
        return _StridedNestedTensor(_tensor([], dtype=dtype, device=device), [])
    for place, tensor in enumerate(tensors):
        if tensor.ndim != tensors[0].ndim:
            raise _ArgumentError(
                f"All Tensors given to nested_tensor must have the same dimension. Found dimension {tensor.ndim} for "
                f"Tensor at index {place} and dimension {tensors[0].ndim} for Tensor at index 0."
            )
    made = _StridedNestedTensor.of(tensors)
    buffer = made.stored.to(made.device if device is None else device, made.dtype if dtype is None else dtype)
    return made.like(buffer)


def as_nested_tensor(
    ts: Tensor | Sequence[Tensor], dtype: DType | None = None, device: DeviceLike = None,
    layout: Layout | None = None,
) -> Tensor:  # fmt: skip
    """Return tensors as the elements of a batch, through which gradients flow to them.

    A tensor counts as the batch of what it holds; a nested one is returned, in another dtype or on another device
    where these are given.
    """
    is_jagged = _layout_of(layout) is _jagged
    if isinstance(ts, Tensor):
        return _of_tensor(ts, dtype, device, layout, is_jagged)
    if not isinstance(ts, (list, tuple)) or not all(isinstance(item, Tensor) for item in ts):
        raise _ArgumentTypeError(
            "as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors"
        )
    return _of_list(list(ts), dtype, device, is_jagged)


def _of_tensor(ts: Tensor, dtype: DType | None, device: DeviceLike, layout: Layout | None, is_jagged: bool) -> Tensor:
    if ts.dim() < 2:
        raise _ArgumentError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    if not ts.is_nested:
        return _building.of_dense(ts, dtype, device) if is_jagged else _of_list(list(ts.unbind()), dtype, device, False)
    own: Any = ts.layout
    if layout is not own:
        raise _ArgumentError(
            "as_nested_tensor(): Converting between nested tensor layouts is not supported; pass the list unbind()"
        )
    return ts.to(ts.device if device is None else device, ts.dtype if dtype is None else dtype)


def nested_tensor_from_jagged(
    values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None, jagged_dim: int | None = None,
    min_seqlen: int | None = None, max_seqlen: int | None = None,
) -> Tensor:  # fmt: skip
    """Return a nested tensor that is a view of packed values, (sum of lengths, ...).

    ``offsets`` say where elements begin and the last one ends, ``lengths`` how long they are; both together describe
    elements with gaps in between. ``max_seqlen`` spares operations that pad a round trip.
    """
    if offsets is None:
        if lengths is None:
            raise _ArgumentError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets, lengths = _function("pad")(lengths.cumsum(0), (1, 0)), None
    if jagged_dim is not None and jagged_dim < 1:
        raise _ArgumentError(f"Expected jagged_dim >=1, but got {jagged_dim}.")
    return _building.view_of(values, offsets, lengths, jagged_dim or 1, min_seqlen, max_seqlen)


def narrow(
    tensor: Tensor, dim: int, start: int | Tensor, length: int | Tensor, layout: Layout | None = _strided
) -> Tensor:
    """Return in each element of a batch the rows from ``start`` on, ``length`` of them: in the jagged layout a view.

    Both may be vectors with a number for each element.
    """
    for name, given in (("start", start), ("length", length)):
        if not isinstance(given, (int, Tensor)):
            raise _ArgumentError(f"{name} must be an integer or a tensor")
    if _layout_of(layout, "nested narrow") is _strided:
        return _narrowed_copy(tensor, dim, start, length)
    if dim != 1:
        raise _ArgumentError("jagged layout only supports dim=1")
    starts, lengths = (
        part if isinstance(part, Tensor) else _tensor([part], device=tensor.device) for part in (start, length)
    )
    return _building.narrowed(tensor, starts, lengths)


def _narrowed_copy(tensor: Tensor, dim: int, start: int | Tensor, length: int | Tensor) -> Tensor:
    if isinstance(start, Tensor) or isinstance(length, Tensor):
        raise _ArgumentError("start and length must be integers for the strided layout NT impl")
    if dim != 0:
        raise _ArgumentError(f"narrow(): only dim=0 supported for nested tensors, but got: {dim}")
    return _of_list(list(tensor.unbind())[start : start + length], None, None, False)


def masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    """Return what a mask chooses of each row, as a jagged tensor with one element for each row.

    Waits for the server, which alone knows how many there are.
    """
    for name, given in (("tensor", tensor), ("mask", mask)):
        layout: Any = given.layout
        if layout is not _strided:
            raise _ArgumentError(f"torch.nested.masked_select requires a strided {name}, given {layout}")
    chosen = mask.expand(tensor.shape).sum(tensor.ndim - 1).view(-1)
    offsets = _function("pad")(chosen.cumsum(0), (1, 0))
    return _NestedTensor(tensor.masked_select(mask), _Ragged(offsets))


def to_padded_tensor(
    input: Tensor, padding: float, output_size: Sequence[int] | None = None, out: Tensor | None = None
) -> Tensor:
    """Return an ordinary tensor in which shorter elements of the batch are filled up with ``padding``."""
    if not isinstance(input, (_NestedTensor, _StridedNestedTensor)):
        raise _ArgumentError(f"to_padded_tensor: expected a nested tensor, not one of {input._meta}")
    made: Tensor = input.to_padded_tensor(padding, output_size)
    return made if out is None else out.copy_(made)
