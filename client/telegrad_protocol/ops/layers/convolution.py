"""Contracts of convolutions over one to three dimensions, their transposes, and the gradient by the weight.

(n, c, *size) with a weight of (out, c / groups, *kernel). ``convolution`` is what all others come down to.
"""

from __future__ import annotations

import math

from telegrad_protocol.dtypes import FLOAT, bfloat16, bool_, float16, float32, float64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.memory_format import channels_last_strides, is_channels_last
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op


def spread(name: str, what: str, values: int | Size, dims: int) -> Size:
    """Return one number per spatial dimension; a single number stands for all."""
    if isinstance(values, int):
        return (values,) * dims
    if len(values) not in (1, dims):
        raise ArgumentError(f"{name}: {what} must be one number or {dims}, got {list(values)}")
    return values * dims if len(values) == 1 else values


def _check_types(name: str, *metas: Meta | None) -> None:
    present = [meta for meta in metas if meta is not None]
    if any(meta.dtype is not present[0].dtype for meta in present):
        raise DTypeError(
            f"{name}: operands must have one type: they should be the same, got {', '.join(map(repr, present))}"
        )
    if present[0].dtype is bool_:
        raise DTypeError(f"{name}: not defined for bool, with operands {', '.join(map(repr, present))}")


def check_positive(name: str, **numbers: Size) -> None:
    for what, values in numbers.items():
        least = min(values, default=0)
        if least <= 0:
            worst = f"{what} should be greater than zero: {what} must be greater than zero, but got {least}"
            raise ArgumentError(f"{name}: non-positive {what} is not supported: {worst}")


def _check_padding(name: str, padding: Size) -> None:
    if min(padding, default=0) < 0:
        raise ArgumentError(f"{name}: negative padding is not supported, got {list(padding)}")


def _check_channels(name: str, input: Meta, weight: Meta, bias: Meta | None, groups: int, transposed: bool) -> int:
    """Return the number of channels of the result; refuse operands whose channels do not fit."""
    if groups <= 0:
        raise ArgumentError(f"{name}: non-positive groups is not supported, got {groups}")
    rows, columns = weight.shape[:2]
    if rows < groups or rows % groups:
        raise ShapeError(
            f"{name}: expected weight to be at least {groups} at dimension 0, and to divide into groups, got {weight}"
        )
    expected, made = (rows, columns * groups) if transposed else (columns * groups, rows)
    if input.shape[1] != expected:
        raise ShapeError(
            f"{name}: {input} should have {expected} channels: Given groups={groups}, weight of size "
            f"{list(weight.shape)}, expected input{list(input.shape)} to have {expected} channels, but got "
            f"{input.shape[1]} channels instead"
        )
    if bias is not None and bias.shape != (made,):
        raise ShapeError(f"{name}: the bias must have shape [{made}], got {bias}")
    return made


def _shrunk(name: str, input: Meta, kernel: Size, stride: Size, padding: Size, dilation: Size) -> Size:
    """Return the spatial size of a convolution's result."""
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    room = [size + 2 * p for size, p in zip(input.shape[2:], padding, strict=True)]
    if any(r > available for r, available in zip(reach, room, strict=True)):
        raise ShapeError(f"{name}: a kernel that reaches over {reach} is larger than the padded {room} of {input}")
    return tuple((available - r) // s + 1 for available, r, s in zip(room, reach, stride, strict=True))


def _grown(
    name: str, input: Meta, kernel: Size, stride: Size, padding: Size, dilation: Size, output_padding: Size
) -> Size:
    """Return the spatial size of a transposed convolution's result."""
    for extra, s, d in zip(output_padding, stride, dilation, strict=True):
        if not 0 <= extra < max(s, d):
            raise ArgumentError(f"{name}: output padding {extra} must be smaller than stride {s} or dilation {d}")
    rows = zip(input.shape[2:], kernel, stride, padding, dilation, output_padding, strict=True)
    size = tuple((n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in rows)
    if min(size) <= 0:
        raise ShapeError(f"{name}: the result for {input} would have the size {list(size)}")
    return size


def _strides(shape: Size, *metas: Meta) -> Size | None:
    """Return strides with channels innermost, if an operand has them so and PyTorch's kernels of the type allow it."""
    first = metas[0]
    if first.dtype not in _KEEP_FORMAT and (len(shape) != 4 or (first.dtype is float64 and first.device.type != "cpu")):
        return None
    return channels_last_strides(shape) if any(is_channels_last(m.shape, m.strides) for m in metas) else None


_KEEP_FORMAT = (float32, float16, bfloat16)


def _check_spatial(name: str, input: Meta, weight: Meta, dims: int) -> None:
    if weight.ndim != dims + 2 or input.ndim != dims + 2:
        raise ShapeError(f"{name}: {input} and {weight} do not have {dims} spatial dimensions each")
    if 0 in weight.shape[2:]:
        raise ShapeError(f"{name}: the kernel of {weight} is empty")
    if 0 in input.shape[2:] and 0 not in input.shape[:2]:
        raise ShapeError(f"{name}: only the batch or the channels may be empty, got {input}")


@op(method=False, out=False)
def convolution(
    input: Meta, weight: Meta, bias: Meta | None, stride: Size, padding: Size, dilation: Size, transposed: bool,
    output_padding: Size, groups: int,
) -> Meta:  # fmt: skip
    """Sum weight[o, c, k] * input[n, c, stride * p + dilation * k - padding] over c and k, and add bias[o].

    Transposed, it is the gradient of that by its input: the weight is (c, out / groups, *kernel) then.
    """
    return _convolution(
        "convolution", input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )


def _convolution(
    name: str, input: Meta, weight: Meta, bias: Meta | None, stride: int | Size, padding: int | Size,
    dilation: int | Size, transposed: bool, output_padding: int | Size, groups: int,
) -> Meta:  # fmt: skip
    _check_types(name, input, weight, bias)
    dims = max(weight.ndim - 2, 1)
    _check_spatial(name, input, weight, dims)
    names = ("stride", "padding", "dilation", "output padding")
    given = (stride, padding, dilation, output_padding)
    stride, padding, dilation, extra = (spread(name, w, v, dims) for w, v in zip(names, given, strict=True))
    check_positive(name, stride=stride, dilation=dilation)
    _check_padding(name, padding)
    channels = _check_channels(name, input, weight, bias, groups, transposed)
    kernel = weight.shape[2:]
    if transposed:
        size = _grown(name, input, kernel, stride, padding, dilation, extra)
    else:
        size = _shrunk(name, input, kernel, stride, padding, dilation)
    shape = (input.shape[0], channels, *size)
    return input.like(shape, strides=_strides(shape, input, weight))


@op(method=False, out=False)
def _convolution_weight_backward(
    grad_output: Meta, input: Meta, kernel_size: Size, stride: Size, padding: Size, dilation: Size, groups: int,
    channels_last: bool,
) -> Meta:  # fmt: skip
    """Sum grad_output[n, o, p] * input[n, c, stride * p + dilation * k - padding] over n and p, as (o, c, k).

    ``channels_last`` tells how the result lies in memory.
    """
    name = "_convolution_weight_backward"
    _check_types(name, grad_output, input)
    dims = len(kernel_size)
    if {len(v) for v in (stride, padding, dilation)} != {dims} or {grad_output.ndim, input.ndim} != {dims + 2}:
        raise ShapeError(f"{name}: {grad_output} and {input} do not go with a kernel of {list(kernel_size)}")
    check_positive(name, kernel_size=kernel_size, stride=stride, dilation=dilation, groups=(groups,))
    _check_padding(name, padding)
    if grad_output.shape[0] != input.shape[0] or grad_output.shape[1] % groups or input.shape[1] % groups:
        raise ShapeError(f"{name}: {grad_output} and {input} do not go together in {groups} groups")
    _check_reach(name, grad_output, input, kernel_size, stride, padding, dilation)
    shape = (grad_output.shape[1], input.shape[1] // groups, *kernel_size)
    return input.like(shape, strides=channels_last_strides(shape) if channels_last and dims > 1 else None)


def _check_reach(
    name: str, grad_output: Meta, input: Meta, kernel: Size, stride: Size, padding: Size, dilation: Size
) -> None:
    """Refuse a gradient that reaches beyond the padded input."""
    sizes = zip(grad_output.shape[2:], input.shape[2:], kernel, stride, padding, dilation, strict=True)
    if any((g - 1) * s + d * (k - 1) + 1 > n + 2 * p for g, n, k, s, p, d in sizes):
        raise ShapeError(f"{name}: {grad_output} reaches beyond the padded {input}")


def is_batched(name: str, input: Meta, dims: int) -> bool:
    """Tell whether the input has a batch dimension before its channels."""
    if input.ndim not in (dims + 1, dims + 2):
        raise ShapeError(f"{name}: expected {dims + 1} or {dims + 2} dimensions, got {input}")
    return input.ndim == dims + 2


def _on_batches(name: str, dims: int, input: Meta, weight: Meta, *rest: object) -> Meta:
    """Return the meta of the result for an input with or without a batch dimension."""
    if weight.ndim != dims + 2:
        raise ShapeError(f"{name}: expected a weight of {dims + 2} dimensions, got {weight}")
    if is_batched(name, input, dims):
        return _convolution(name, input, weight, *rest)  # type: ignore[arg-type]
    batch = input.like((1, *input.shape), strides=(input.shape[0] * input.strides[0], *input.strides))
    batched = _convolution(name, batch, weight, *rest)  # type: ignore[arg-type]
    return input.like(batched.shape[1:], strides=batched.strides[1:])


def same_padding(name: str, padding: str, kernel: Size, stride: Size, dilation: Size) -> tuple[Size, Size]:
    """Return what ``padding`` puts before and after a dimension: ``valid`` nothing, ``same`` what keeps the size."""
    if padding == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    if padding != "same":
        raise ArgumentError(f"{name}: padding must be a size, 'same' or 'valid', got {padding!r}")
    if any(s != 1 for s in stride):
        raise ArgumentError(f"{name}: padding='same' is not supported for strided convolutions, got {list(stride)}")
    total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)


def _padded_by_name(
    name: str, dims: int, input: Meta, weight: Meta, bias: Meta | None, stride: int | Size, padding: str,
    dilation: int | Size, groups: int,
) -> Meta:  # fmt: skip
    if weight.ndim != dims + 2:
        raise ShapeError(f"{name}: expected a weight of {dims + 2} dimensions, got {weight}")
    stride, dilation = spread(name, "stride", stride, dims), spread(name, "dilation", dilation, dims)
    before, after = same_padding(name, padding, weight.shape[2:], stride, dilation)
    if before != after:
        is_batched(name, input, dims)
        lead = input.ndim - dims
        size = [n + a - b for n, b, a in zip(input.shape[lead:], before, after, strict=True)]
        input = input.like((*input.shape[:lead], *size))
    return _on_batches(name, dims, input, weight, bias, stride, before, dilation, False, (0,), groups)


@op(method=False, out=False)
def conv1d(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: int | Size = 0,
    dilation: int | Size = 1, groups: int = 1,
) -> Meta:  # fmt: skip
    """Convolve sequences with a kernel: (n, c, l) and (out, c / groups, k) -> (n, out, l'); n may be missing."""
    return _on_batches("conv1d", 1, input, weight, bias, stride, padding, dilation, False, (0,), groups)


@op(method=False, out=False, name="conv1d.padding")
def conv1d_padding(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: str = "valid",
    dilation: int | Size = 1, groups: int = 1,
) -> Meta:  # fmt: skip
    """Convolve as ``conv1d`` does, with a padding by name: ``valid`` or ``same``."""
    return _padded_by_name("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@op(method=False, out=False)
def conv2d(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: int | Size = 0,
    dilation: int | Size = 1, groups: int = 1,
) -> Meta:  # fmt: skip
    """Convolve images with a kernel: (n, c, h, w), (out, c / groups, kh, kw) -> (n, out, h', w'); n may be missing."""
    return _on_batches("conv2d", 2, input, weight, bias, stride, padding, dilation, False, (0,), groups)


@op(method=False, out=False, name="conv2d.padding")
def conv2d_padding(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: str = "valid",
    dilation: int | Size = 1, groups: int = 1,
) -> Meta:  # fmt: skip
    """Convolve as ``conv2d`` does, with a padding by name: ``valid`` or ``same``."""
    return _padded_by_name("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@op(method=False, out=False)
def conv3d(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: int | Size = 0,
    dilation: int | Size = 1, groups: int = 1,
) -> Meta:  # fmt: skip
    """Convolve volumes with a kernel: (n, c, d, h, w) and (out, c / groups, kd, kh, kw) -> (n, out, d', h', w')."""
    return _on_batches("conv3d", 3, input, weight, bias, stride, padding, dilation, False, (0,), groups)


@op(method=False, out=False, name="conv3d.padding")
def conv3d_padding(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: str = "valid",
    dilation: int | Size = 1, groups: int = 1,
) -> Meta:  # fmt: skip
    """Convolve as ``conv3d`` does, with a padding by name: ``valid`` or ``same``."""
    return _padded_by_name("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@op(method=False, out=False)
def conv_transpose1d(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: int | Size = 0,
    output_padding: int | Size = 0, groups: int = 1, dilation: int | Size = 1,
) -> Meta:  # fmt: skip
    """Compute the gradient of ``conv1d`` by its input: (n, c, l) and (c, out / groups, k) -> (n, out, l')."""
    return _on_batches(
        "conv_transpose1d", 1, input, weight, bias, stride, padding, dilation, True, output_padding, groups
    )


@op(method=False, out=False)
def conv_transpose2d(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: int | Size = 0,
    output_padding: int | Size = 0, groups: int = 1, dilation: int | Size = 1,
) -> Meta:  # fmt: skip
    """Compute the gradient of ``conv2d`` by its input: (n, c, h, w), (c, out / groups, kh, kw) -> (n, out, h', w')."""
    return _on_batches(
        "conv_transpose2d", 2, input, weight, bias, stride, padding, dilation, True, output_padding, groups
    )


@op(method=False, out=False)
def conv_transpose3d(
    input: Meta, weight: Meta, bias: Meta | None = None, stride: int | Size = 1, padding: int | Size = 0,
    output_padding: int | Size = 0, groups: int = 1, dilation: int | Size = 1,
) -> Meta:  # fmt: skip
    """Compute the gradient of ``conv3d`` by its input, with a weight of (c, out / groups, kd, kh, kw)."""
    return _on_batches(
        "conv_transpose3d", 3, input, weight, bias, stride, padding, dilation, True, output_padding, groups
    )


def _unfolded_size(name: str, size: Size, kernel: Size, dilation: Size, padding: Size, stride: Size) -> Size:
    """Return the number of positions of the kernel in every dimension."""
    check_positive(name, kernel_size=kernel, dilation=dilation, stride=stride)
    _check_padding(name, padding)
    rows = zip(size, kernel, dilation, padding, stride, strict=True)
    counts = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in rows)
    if min(counts) < 1:
        raise ShapeError(f"{name}: a kernel of {list(kernel)} fits nowhere into {list(size)}")
    return counts


def _check_picture(name: str, input: Meta, dims: int) -> None:
    if input.ndim not in (dims, dims + 1) or 0 in input.shape[-dims:]:
        raise ShapeError(f"{name}: expected {dims} or {dims + 1} dimensions that are not empty, got {input}")


@op(method=False, out=False)
def im2col(
    input: Meta, kernel_size: Size, dilation: int | Size = 1, padding: int | Size = 0, stride: int | Size = 1
) -> Meta:
    """Copy the windows of a sliding kernel into columns: (n, c, h, w) -> (n, c * kh * kw, positions)."""
    _check_picture("unfold", input, 3)
    names = ("kernel_size", "dilation", "padding", "stride")
    given = (kernel_size, dilation, padding, stride)
    numbers = [spread("unfold", what, values, 2) for what, values in zip(names, given, strict=True)]
    positions = _unfolded_size("unfold", input.shape[-2:], *numbers)
    rows = input.shape[-3] * math.prod(numbers[0])
    return input.like((*input.shape[:-3], rows, math.prod(positions)))


@op(method=False, out=False, module="nn.functional")
def fold(
    input: Meta,
    output_size: Size,
    kernel_size: Size,
    dilation: int | Size = 1,
    padding: int | Size = 0,
    stride: int | Size = 1,
) -> Meta:
    """Add up the columns of ``unfold`` at the places they came from: (n, c * kh * kw, positions) -> (n, c, h, w)."""
    if input.ndim not in (2, 3):
        raise ShapeError(f"fold: expected two or three dimensions, got {input}")
    if input.dtype.category < FLOAT:
        raise DTypeError(f"fold: expected a floating-point or complex tensor, got {input}")
    names = ("output_size", "kernel_size", "dilation", "padding", "stride")
    given = (output_size, kernel_size, dilation, padding, stride)
    size, *numbers = [spread("fold", what, values, 2) for what, values in zip(names, given, strict=True)]
    positions = _unfolded_size("fold", size, *numbers)
    rows, columns = input.shape[-2:]
    if rows % math.prod(numbers[0]) or columns != math.prod(positions):
        raise ShapeError(f"fold: {input} does not hold {math.prod(positions)} columns of {list(numbers[0])} for {size}")
    return input.like((*input.shape[:-2], rows // math.prod(numbers[0]), *size))
