"""Contracts of indexing with tensors, along dimensions and by masks, and of embedding.

Bounds are checked where the data is. Masks make a shape depend on data: the rule of ``index`` gives None for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from telegrad_protocol.dtypes import FLOAT, bool_, int32, int64, uint8
from telegrad_protocol.errors import (  # fmt: skip
    ArgumentError,
    DimensionError,
    DTypeError,
    IndexOutOfRangeError,
    NotSupportedError,
    ShapeError,
)
from telegrad_protocol.layout import (  # fmt: skip
    Size,
    broadcast_shapes,
    broadcast_strides,
    contiguous_strides,
    result_strides,
    view_strides,
    wrap_dim,
)
from telegrad_protocol.meta import Meta

from .contract import Scalar, op
from .creation import check_fits as check_number
from .creation import like

Indices = Sequence[Meta | None]
MASKS = (bool_, uint8)
"""The types of indices that are masks."""


def check_integers(name: str, index: Meta) -> None:
    """Refuse index tensors that do not hold 32- or 64-bit integers."""
    if index.dtype is not int64 and index.dtype is not int32:
        raise DTypeError(f"{name}: indices must be int64 or int32, got {index}")


def has_masks(indices: Indices) -> bool:
    """Tell whether any index is a mask, so that the result's shape depends on data."""
    return any(i is not None and i.dtype in MASKS for i in indices)


def _check_indices(name: str, input: Meta, indices: Indices) -> None:
    at = 0
    for index in indices:
        if index is None:
            at += 1
        elif index.dtype in MASKS:
            if input.shape[at : at + index.ndim] != index.shape:
                raise IndexOutOfRangeError(f"{name}: mask {index} does not match {input} at dimension {at}")
            at += index.ndim
        else:
            check_integers(name, index)
            if at < input.ndim and not input.shape[at] and index.numel:
                raise IndexOutOfRangeError(
                    f"{name}: dimension {at} of {input} is empty, but {index} picks elements of it"
                )
            at += 1
    if at > input.ndim:
        raise DimensionError(f"{name}: {at} indices are too many for {input}")
    if all(index is None for index in indices):
        raise ArgumentError(f"{name}: at least one index tensor is needed")


class Placement:
    """Where the dimensions of integer indices lie in the result: at the first, or in front where others lie between."""

    __slots__ = ("at", "block", "dims", "order", "shape")

    def __init__(self, name: str, input: Meta, indices: Indices) -> None:
        self.dims = [d for d, index in enumerate(indices) if index is not None]
        try:
            self.block = broadcast_shapes(name, *(index.shape for index in indices if index is not None))
        except ShapeError as error:
            raise IndexOutOfRangeError(error.message) from None
        adjacent = self.dims == list(range(self.dims[0], self.dims[-1] + 1))
        self.at = self.dims[0] if adjacent else 0
        rest = [d for d in range(input.ndim) if d not in self.dims]
        self.order = [*rest[: self.at], *self.dims, *rest[self.at :]]
        kept = [input.shape[d] for d in rest]
        self.shape: Size = (*kept[: self.at], *self.block, *kept[self.at :])


def _index_strides(input: Meta, indices: Indices, place: Placement) -> Size:
    """Return the strides of the result of ``index`` as PyTorch's TensorIterator lays it out."""
    rest = [input.strides[d] for d in range(input.ndim) if d not in place.dims]
    width = len(place.block)
    source = (*rest[: place.at], *((0,) * width), *rest[place.at :])
    after = len(place.shape) - place.at - width
    operands = [(place.shape, source)]
    for index in indices:
        if index is not None:
            strides = broadcast_strides(index.shape, index.strides, place.block)
            shape = (1,) * place.at + place.block + (1,) * after
            operands.append((shape, view_strides(place.block, strides, shape) or contiguous_strides(shape)))
    return result_strides(place.shape, operands)


@op(no_grad=("indices",), from_host=("indices",), out=False, method=False)
def index(input: Meta, indices: list[Meta | None]) -> Meta | None:
    """Return input[indices]: integer tensors and masks, broadcast together; None stands for a whole dimension."""
    _check_indices("index", input, indices)
    if has_masks(indices):
        return None
    place = Placement("index", input, indices)
    return input.like(place.shape, strides=_index_strides(input, indices, place))


@op(no_grad=("indices",), from_host=("indices",), inplace=True, out=False)
def index_put(input: Meta, indices: list[Meta | None], values: Meta | Scalar, accumulate: bool = False) -> Meta:
    """Copy ``input`` with ``values``, broadcast, at ``indices``; ``accumulate`` adds them to the elements there."""
    _check_indices("index_put", input, indices)
    if isinstance(values, Meta):
        if values.dtype is not input.dtype:
            raise DTypeError(f"index_put: values {values} must have the dtype of {input}")
    else:
        check_number("index_put", values, input.dtype)
    if not has_masks(indices):
        place = Placement("index_put", input, indices)
        if isinstance(values, Meta):
            check_fits("index_put", values, place.shape)
    return like(input, None, None)


def check_fits(name: str, values: Meta, shape: Size) -> None:
    """Refuse values that do not broadcast to the indexed part."""
    lead = len(shape) - values.ndim
    if lead < 0 or any(v not in (1, s) for v, s in zip(values.shape, shape[lead:], strict=True)):
        raise ShapeError(f"{name}: values {values} do not broadcast to the indexed part of shape {list(shape)}")


def vector_shape(meta: Meta) -> Size:
    """Return the shape, with 0-d tensors as vectors of one element."""
    return meta.shape or (1,)


def check_source(name: str, input: Meta, src: Meta) -> None:
    """Refuse a source of another element type."""
    if src.dtype is not input.dtype:
        raise DTypeError(f"{name}: Expected self.dtype to be equal to src.dtype, got {input} and {src}")


def _check_vector(name: str, index: Meta) -> int:
    check_integers(name, index)
    if index.ndim > 1:
        raise DimensionError(f"{name}: Index is supposed to be a vector, got {index}")
    return index.numel


@op(no_grad=("index",), out_rules=("separate",))
def index_select(input: Meta, dim: int, index: Meta) -> Meta:
    """Return the slices of ``input`` at ``index`` along ``dim``."""
    at = wrap_dim("index_select", dim, input.ndim)
    count = _check_vector("index_select", index)
    if not input.ndim:
        if count != 1:
            raise ShapeError(f"index_select: {index} must hold one index for a 0-d tensor")
        return input.like(())
    return input.like((*input.shape[:at], count, *input.shape[at + 1 :]))


def _check_parts(name: str, input: Meta, dim: int, index: Meta, source: Meta) -> None:
    """Refuse a ``source`` that does not hold one slice of ``input`` per index."""
    at = wrap_dim(name, dim, input.ndim)
    count = _check_vector(name, index)
    check_source(name, input, source)
    own, given = vector_shape(input), vector_shape(source)
    if given != (*own[:at], count, *own[at + 1 :]) or (input.ndim and source.ndim != input.ndim and count != 1):
        raise ShapeError(f"{name}: source {source} does not hold {count} parts of {input} along dimension {at}")


@op(no_grad=("index",), inplace=True)
def index_add(input: Meta, dim: int, index: Meta, source: Meta, *, alpha: Scalar = 1) -> Meta:
    """Copy ``input`` with ``alpha * source`` added at ``index`` along ``dim``; repeated indices add up."""
    _check_parts("index_add", input, dim, index, source)
    return input.like()


@op(no_grad=("index",), inplace=True)
def index_copy(input: Meta, dim: int, index: Meta, source: Meta) -> Meta:
    """Copy ``input`` with ``source`` at ``index`` along ``dim``."""
    _check_parts("index_copy", input, dim, index, source)
    return input.like()


@op(no_grad=("index",), inplace=True, out=False)
def index_fill(input: Meta, dim: int, index: Meta, value: Meta | Scalar) -> Meta:
    """Copy ``input`` with one value at ``index`` along ``dim``."""
    wrap_dim("index_fill", dim, input.ndim)
    _check_vector("index_fill", index)
    if isinstance(value, Meta) and value.ndim:
        raise ShapeError(f"index_fill: value must be a number or a 0-d tensor, got {value}")
    if not isinstance(value, Meta):
        check_number("index_fill", value, input.dtype)
    return like(input, None, None)


def check_mask(name: str, mask: Meta) -> None:
    """Refuse masks that are not bool, such as the uint8 masks of old programs."""
    if mask.dtype not in MASKS:
        raise DTypeError(f"{name}: mask must be bool, got {mask}")


@op(no_grad=("mask",), data_dependent=True, out_rules=("copied", "separate"))
def masked_select(input: Meta, mask: Meta) -> None:
    """Return the elements of ``input`` where ``mask`` is true, both broadcast, as a vector."""
    check_mask("masked_select", mask)
    broadcast_shapes("masked_select", input.shape, mask.shape)


@op(no_grad=("mask",), inplace=True, out=False)
def masked_scatter(input: Meta, mask: Meta, source: Meta) -> Meta:
    """Copy ``input`` with the elements of ``source``, in order, where ``mask`` is true."""
    if mask.dtype is not bool_:
        raise DTypeError(f"masked_scatter: masked_scatter_ only supports boolean masks, got {mask}")
    check_source("masked_scatter", input, source)
    shape = broadcast_shapes("masked_scatter", input.shape, mask.shape)
    return input.like(shape)


@op(data_dependent=True, differentiable=False)
def nonzero(input: Meta, *, as_tuple: bool = False) -> None:
    """Return the positions of elements that are not zero, one per row."""
    if as_tuple:
        raise NotSupportedError("nonzero: as_tuple is a matter of the client, which takes the columns apart")


@op(data_dependent=True, differentiable=False, method=False, returns=("first", "groups", "counts"))
def _unique_rows(input: Meta, consecutive: bool) -> None:
    """Group equal rows of a matrix: the first row of each group, the group of each row, and the sizes of the groups.

    Groups are in ascending order; with ``consecutive`` they are runs of equal rows in the order of the matrix.
    """
    if input.ndim != 2:
        raise ShapeError(f"_unique_rows: expected a matrix, got {input}")
    if input.dtype.is_complex and not consecutive:
        raise DTypeError(f"unique: complex numbers have no order, got {input}")


@op(data_dependent=True, differentiable=False)
def argwhere(input: Meta) -> None:
    """Return the positions of elements that are not zero, one per row."""


@op(data_dependent=True, differentiable=False)
def bincount(input: Meta, weights: Meta | None = None, minlength: int = 0) -> None:
    """Count how often every number from 0 on occurs, or sum its ``weights``."""
    if input.ndim != 1 or input.dtype.category >= FLOAT or input.dtype is bool_:
        raise ShapeError(f"bincount: expected a vector of integers, got {input}")
    if minlength < 0:
        raise ArgumentError(f"bincount: minlength must not be negative, got {minlength}")
    if weights is not None and weights.shape != input.shape:
        raise ShapeError(f"bincount: weights {weights} must have the shape of {input}")


@op(module="nn.functional", method=False, out=False, no_grad=("input",))
def embedding(
    input: Meta, weight: Meta, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Meta:  # fmt: skip
    """Return the rows of ``weight`` at ``input``; the row ``padding_idx`` gets no gradient."""
    rows = weight.shape[0] if weight.ndim else 0
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ArgumentError(f"embedding: padding_idx {padding_idx} is not a row of {weight}")
    return _embedding.rule(input, weight, 0, False)


@op(method=False, out=False, no_grad=("input",))
def _embedding(input: Meta, weight: Meta, padding_idx: int, scale_grad_by_freq: bool) -> Meta:
    """Return the rows of ``weight`` at ``input``, with ``padding_idx`` counted from the front, -1 for none."""
    check_integers("embedding", input)
    if weight.ndim != 2:
        raise ShapeError(f"embedding: 'weight' must be 2-D, got {weight}")
    return weight.like((*input.shape, weight.shape[1]))


@op(method=False, out=False, no_grad=("indices",))
def embedding_dense_backward(
    grad_output: Meta, indices: Meta, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Meta:
    """Compute the gradient of the table of ``embedding``: rows of ``grad_output`` added up by index."""
    check_integers("embedding_dense_backward", indices)
    if grad_output.shape[:-1] != indices.shape or grad_output.ndim != indices.ndim + 1 or num_weights < 0:
        raise ShapeError(f"embedding_dense_backward: {grad_output} does not hold one row per index of {indices}")
    return grad_output.like((num_weights, grad_output.shape[-1]))


@op(method=False, mutates="weight", differentiable=False)
def embedding_renorm_(weight: Meta, indices: Meta, max_norm: float, norm_type: float) -> Meta:
    """Scale the rows of ``weight`` at ``indices`` down to ``max_norm``."""
    _embedding.rule(indices, weight, 0, False)
    if not weight.dtype.is_floating_point:
        raise DTypeError(f"embedding: the rows of {weight} have no norm; expected a floating point type")
    return weight


@op(module="nn.functional", method=False, out=False, differentiable=False)
def one_hot(tensor: Meta, num_classes: int = -1) -> Meta | None:
    """Append a dimension with 1 at the index that an element holds; its size is ``num_classes``, the least for -1."""
    if tensor.dtype is not int64:
        raise DTypeError(f"one_hot: class numbers must be int64, got {tensor}")
    if num_classes < -1 or (num_classes <= 0 and not tensor.numel):
        raise ArgumentError(f"one_hot: {num_classes} classes cannot be right for {tensor}")
    return None if num_classes == -1 else tensor.like((*tensor.shape, num_classes))
