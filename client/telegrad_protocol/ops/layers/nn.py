"""Contracts of neural networks: dropout, gates, padding. Attention, losses, norms have their own files."""

from __future__ import annotations

from telegrad_protocol.dtypes import FLOAT, DType, bool_, get_default_dtype
from telegrad_protocol.errors import ArgumentError, DTypeError, NotSupportedError, ShapeError
from telegrad_protocol.layout import Size, result_strides, wrap_dim
from telegrad_protocol.memory_format import channels_last_strides, is_channels_last
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import Scalar, op
from telegrad_protocol.ops.creation import check_fits


def _in_order(input: Meta, dtype: DType | None = None) -> Meta:
    """Return the meta of a new tensor in the memory order of ``input``."""
    return input.like(dtype=dtype, strides=result_strides(input.shape, [(input.shape, input.strides)]))


def _check_dropout(name: str, input: Meta, p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"{name}: the probability must be between 0 and 1, got {p}")
    if input.dtype.category < FLOAT:
        raise DTypeError(f"{name}: expected a floating-point or complex tensor, got {input}")


@op(out=False, method=False, random=True, returns=("output", "mask"))
def native_dropout(input: Meta, p: float, train: bool | None) -> tuple[Meta, Meta]:
    """Zero elements with probability ``p`` and scale the others by 1 / (1 - p); also return the mask of those kept."""
    _check_dropout("native_dropout", input, p)
    return _in_order(input), _in_order(input, bool_)


@op(out=False, method=False)
def native_dropout_backward(grad_output: Meta, mask: Meta, scale: float) -> Meta:
    """Compute the gradient of dropout: grad_output * mask * scale."""
    if mask.shape != grad_output.shape or mask.dtype is not bool_:
        raise ShapeError(f"native_dropout_backward: the mask {mask} is not one for {grad_output}")
    return _in_order(grad_output, grad_output.dtype if grad_output.dtype.category >= FLOAT else get_default_dtype())


def keeps_all(input: Meta, p: float, training: bool) -> bool:
    """Tell whether dropout returns its input itself instead of a copy."""
    return not training or p == 0.0 or not input.numel


@op(out=False, method=False, random=True, inplace=True, module="nn.functional")
def dropout(input: Meta, p: float = 0.5, training: bool = True) -> Meta:
    """Zero elements with probability ``p`` and scale the others by 1 / (1 - p); without training, the input itself."""
    if training:
        _check_dropout("dropout", input, p)
    return input if keeps_all(input, p, training) else _in_order(input)


@op(out=False, method=False, random=True, inplace=True)
def feature_dropout(input: Meta, p: float, train: bool) -> Meta:
    """Zero whole channels (dimension 1) with probability ``p`` and scale the others by 1 / (1 - p)."""
    if train:
        _check_dropout("feature_dropout", input, p)
    if input.ndim < 2:
        raise ShapeError(f"feature_dropout: expected at least two dimensions, got {input}")
    return input if keeps_all(input, p, train) else _in_order(input)


@op(out=False, method=False, random=True, inplace=True, module="nn.functional")
def alpha_dropout(input: Meta, p: float = 0.5, training: bool = False) -> Meta:
    """Set elements to SELU's lower limit with probability ``p``, and scale the others to keep mean and variance."""
    if training:
        _check_dropout("alpha_dropout", input, p)
    return input if keeps_all(input, p, training) else _in_order(input)


@op(out=False, method=False, module="nn.functional")
def glu(input: Meta, dim: int = -1) -> Meta:
    """Multiply the first half along ``dim`` by the sigmoid of the second half."""
    if not input.ndim:
        raise ShapeError(f"glu: expected at least one dimension, got {input}")
    along = wrap_dim("glu", dim, input.ndim)
    if input.shape[along] % 2:
        raise ShapeError(f"glu: dimension {along} of {input} must be even")
    if input.dtype.category < FLOAT:
        raise DTypeError(f"glu: expected a floating-point tensor, got {input}")
    shape = (*input.shape[:along], input.shape[along] // 2, *input.shape[along + 1 :])
    return input.like(shape, strides=result_strides(shape, [(shape, input.strides)] * 2))


def per_channel(input: Meta, weight: Meta) -> Size:
    """Return the shape in which one weight per channel broadcasts to ``input``."""
    return (1, weight.numel, *(1,) * (input.ndim - 2)) if input.ndim > 1 else (1,) * input.ndim


@op(out=False)
def prelu(input: Meta, weight: Meta) -> Meta:
    """Return input where it is positive, else weight * input, with one weight or one per channel (dimension 1)."""
    if input.dtype is not weight.dtype:
        raise DTypeError(f"prelu: input and weight must have the same dtype, got {input} and {weight}")
    if weight.ndim > 1:
        raise ShapeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if weight.numel != 1 and not input.ndim:
        raise ShapeError(f"prelu: Not allow zero-dim input tensor. Found {weight.numel} weights for {input}")
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.numel not in (1, channels):
        counts = f"{weight.numel} and {channels} of {input}"
        raise ShapeError(f"prelu: Mismatch of parameter numbers and input channel size. Found {counts}")
    return _in_order(input)


def _padded(name: str, input: Meta, pad: Size) -> Size:
    """Return the shape with ``pad`` added: pairs of before and after, from the last dimension backwards."""
    if len(pad) % 2:
        raise ShapeError(f"{name}: paddings come in pairs, got {list(pad)}")
    if len(pad) > 2 * input.ndim:
        raise ShapeError(f"{name}: {len(pad) // 2} pairs of paddings for {input}")
    shape = list(input.shape)
    for i in range(len(pad) // 2):
        shape[-1 - i] += pad[2 * i] + pad[2 * i + 1]
    if min(shape, default=0) < 0:
        raise ShapeError(f"{name}: {list(pad)} takes more from {input} than there is")
    return tuple(shape)


@op(method=False)
def constant_pad_nd(input: Meta, pad: Size, value: Scalar = 0) -> Meta:
    """Surround with ``value``; negative paddings cut off."""
    check_fits("constant_pad_nd", value, input.dtype)
    return _laid_out_as(input, _padded("constant_pad_nd", input, pad))


def _laid_out_as(input: Meta, shape: Size) -> Meta:
    """Return the meta of a padded tensor, which has its channels innermost where the input has."""
    innermost = is_channels_last(input.shape, input.strides)
    return input.like(shape, strides=channels_last_strides(shape) if innermost else None)


def _check_mirrored(input: Meta, pad: Size, mode: str) -> None:
    """Refuse paddings that ``mode`` cannot make from the input's own elements."""
    if len(pad) not in (2, 4, 6) or input.ndim not in (len(pad) // 2 + 1, len(pad) // 2 + 2):
        raise NotSupportedError(f"pad: {len(pad)} paddings of mode {mode!r} do not go with {input}")
    for i, amount in enumerate(pad):
        size = input.shape[-1 - i // 2]
        if mode == "reflect" and amount >= size:
            raise ShapeError(
                f"pad: a reflection of {amount} must be less than dimension {input.ndim - 1 - i // 2} of {input}"
            )
        if mode == "circular" and amount > size:
            raise ShapeError(
                f"pad: {amount} wraps around dimension {input.ndim - 1 - i // 2} of {input} more than once"
            )
        if mode == "replicate" and not size:
            raise ShapeError(f"pad: nothing to replicate in dimension {input.ndim - 1 - i // 2} of {input}")


Border = tuple[int, int, str]


def borders(size: int, before: int, after: int, mode: str) -> tuple[Border, Border]:
    """Return where the elements of both borders come from: first element, length, and how they are taken.

    They are taken ``as they are``, ``reversed``, or ``repeated``: the first element again and again.
    """
    if mode == "reflect":
        return (1, before, "reversed"), (size - 1 - after, after, "reversed")
    if mode == "replicate":
        return (0, before, "repeated"), (size - 1, after, "repeated")
    return (size - before, before, "as they are"), (0, after, "as they are")


_WIDEST = {"reflect": -1, "circular": 0}
"""By mode, by how much a border may be wider than the input."""


@op(out=False, method=False)
def _pad_border(input: Meta, dim: int, before: int, after: int, mode: str) -> Meta:
    """Surround one dimension with elements mirrored, repeated or wrapped around, see ``pad``."""
    if mode not in ("reflect", "replicate", "circular") or not 0 <= dim < input.ndim:
        raise ArgumentError(f"_pad_border: expected a mode and a dimension of {input}, got {mode!r} and {dim}")
    size = input.shape[dim]
    if min(before, after) < 0 or not size or max(before, after) > size + _WIDEST.get(mode, before + after):
        raise ShapeError(f"_pad_border: {input} cannot be padded by {before} and {after} along dimension {dim}")
    shape = (*input.shape[:dim], size + before + after, *input.shape[dim + 1 :])
    return input.like(shape) if mode == "circular" else _laid_out_as(input, shape)


@op(out=False, method=False, module="nn.functional")
def pad(input: Meta, pad: Size, mode: str = "constant", value: Scalar | None = None) -> Meta:
    """Surround with a value (``constant``), or with elements mirrored (``reflect``), repeated or wrapped around.

    ``mode``: ``constant``, ``reflect``, ``replicate`` or ``circular``.
    """
    shape = _padded("pad", input, pad)
    if mode == "constant":
        return _laid_out_as(input, shape)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotSupportedError(f"pad: unknown mode {mode!r}")
    if value is not None and value != 0:
        raise ArgumentError(f"pad: mode {mode!r} takes no value, got {value}")
    _check_mirrored(input, pad, mode)
    return input.like(shape) if mode == "circular" else _laid_out_as(input, shape)
