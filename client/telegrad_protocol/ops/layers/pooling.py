"""Contracts of pooling: windows of a fixed size that slide, and windows that divide a dimension into equal parts.

Operands are (n, c, *size), or (c, *size) without a batch. The private operations are the steps that are differentiated.
"""

from __future__ import annotations

from telegrad_protocol.dtypes import FLOAT, bool_, int64
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.layout import Size
from telegrad_protocol.memory_format import channels_last_strides, is_channels_last
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op

from .convolution import check_positive, spread


def _batch(dims: int) -> str:
    return f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch size for input"


def _check_dims(name: str, input: Meta, dims: int) -> None:
    """Refuse what does not have ``dims``, one to three, dimensions after its channels; only the batch may be empty."""
    if not 1 <= dims <= 3:
        raise ShapeError(f"{name}: pools over one to three dimensions, not {dims}")
    if input.ndim not in (dims + 1, dims + 2):
        raise ShapeError(f"{name}: {_batch(dims)}, got {input}")


def _check_filled(name: str, input: Meta, dims: int) -> None:
    if 0 in input.shape[-dims - 1 :]:
        filled = "Expected input's non-batch dimensions to have positive length"
        raise ShapeError(f"{name}: {_batch(dims)}: {filled}, got {input}")


def windows(
    name: str, dims: int, kernel_size: Size, stride: Size | None, padding: int | Size, dilation: int | Size = 1
) -> tuple[Size, Size, Size, Size]:
    """Return checked kernel, stride, padding and dilation per dimension; the stride is the kernel's size by default."""
    kernel = spread(name, "kernel_size", kernel_size, dims)
    given = (("stride", stride or kernel), ("padding", padding), ("dilation", dilation))
    stride, padding, dilation = (spread(name, what, numbers, dims) for what, numbers in given)
    check_positive(name, kernel_size=kernel, stride=stride, dilation=dilation)
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise ArgumentError(f"{name}: pad must be non-negative, but got pad: {p}")
        if p > ((k - 1) * d + 1) // 2:
            wide = f"pad={p}, kernel_size={k} and dilation={d}"
            raise ArgumentError(f"{name}: pad should be at most half of effective kernel size, but got {wide}")
    return kernel, stride, padding, dilation


def _check_each(name: str, dims: int, **given: Size) -> None:
    """Raise ShapeError where a kernel that spreads nothing is not given a number for each dimension."""
    for what, numbers in given.items():
        if len(numbers) != dims:
            raise ShapeError(f"{name}: {what} {list(numbers)} is not a number for each of {dims} dimensions")


def pooled_size(name: str, size: Size, numbers: tuple[Size, Size, Size, Size], ceil_mode: bool) -> Size:
    """Count the windows; with ``ceil_mode`` also those that begin inside the input and end outside."""
    counts = []
    for n, k, s, p, d in zip(size, *numbers, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        count = -(-room // s) + 1 if ceil_mode else room // s + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1
        counts.append(count)
    if min(counts) < 1:
        raise ShapeError(
            f"{name}: Output size is too small: a kernel of {list(numbers[0])} fits nowhere into {list(size)}"
        )
    return tuple(counts)


def _result(input: Meta, dims: int, size: Size, keeps_format: bool = True) -> Meta:
    """Return the meta of a result whose channels lie innermost if the input's do."""
    shape = (*input.shape[:-dims], *size)
    if not keeps_format or input.ndim != dims + 2:
        return input.like(shape)
    if dims == 1:  # a picture of one line
        (n, c, length), (batch, channel, step) = input.shape, input.strides
        innermost = is_channels_last((n, c, 1, length), (batch, channel, length * step, step))
        return input.like(shape, strides=(c * size[0], 1, c) if innermost else None)
    innermost = is_channels_last(input.shape, input.strides)
    return input.like(shape, strides=channels_last_strides(shape) if innermost else None)


@op(out=False, method=False, returns=("output", "indices"))
def _max_pool(
    input: Meta, kernel_size: Size, stride: Size, padding: Size, dilation: Size, ceil_mode: bool
) -> tuple[Meta, Meta]:  # fmt: skip
    """Return the largest element of every window, and its position in the row-major picture."""
    _check_each("_max_pool", len(kernel_size), stride=stride, padding=padding, dilation=dilation)
    return _max_pooled("_max_pool", input, len(kernel_size), kernel_size, stride, padding, dilation, ceil_mode)


def _max_pooled(
    name: str, input: Meta, dims: int, kernel_size: Size, stride: Size | None, padding: int | Size,
    dilation: int | Size,     ceil_mode: bool,
) -> tuple[Meta, Meta]:  # fmt: skip
    _check_dims(name, input, dims)
    if input.dtype is bool_ or input.dtype.is_complex:
        raise DTypeError(f"{name}: not defined for {input.dtype.name}, with operand {input}")
    numbers = windows(name, dims, kernel_size, stride, padding, dilation)
    _check_filled(name, input, dims)
    output = _result(input, dims, pooled_size(name, input.shape[-dims:], numbers, ceil_mode))
    return output, output.like(dtype=int64, strides=output.strides)


@op(out=False, method=False)
def _max_pool_backward(
    grad_output: Meta, indices: Meta, input_size: Size, kernel_size: Size, stride: Size, padding: Size, dilation: Size
) -> Meta:
    """Add up the elements of the gradient at the positions of their maxima."""
    name = "_max_pool_backward"
    dims = len(kernel_size)
    if grad_output.shape != indices.shape or indices.dtype is not int64:
        raise ShapeError(f"{name}: {indices} are not the positions for {grad_output}")
    _check_dims(name, grad_output, dims)
    _check_each(name, dims, stride=stride, padding=padding, dilation=dilation)
    numbers = windows(name, dims, kernel_size, stride, padding, dilation)
    if len(input_size) != dims or min(input_size, default=0) < 0:
        raise ShapeError(f"{name}: {list(input_size)} are not {dims} sizes")
    sizes = [pooled_size(name, input_size, numbers, ceil_mode) for ceil_mode in (False, True)]
    if indices.shape[-dims:] not in sizes:
        raise ShapeError(f"{name}: {grad_output} is not what pooling of {list(input_size)} gives")
    return _result(grad_output.like(strides=indices.strides), dims, input_size)


def _max_pool_by_name(
    name: str, dims: int, input: Meta, kernel_size: Size, stride: Size | None, padding: int | Size,
    dilation: int | Size,     ceil_mode: bool, return_indices: bool,
) -> Meta | tuple[Meta, Meta]:  # fmt: skip
    results = _max_pooled(name, input, dims, kernel_size, stride, padding, dilation, ceil_mode)
    return results if return_indices else results[0]


@op(out=False, method=False)
def max_pool1d(
    input: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0, dilation: int | Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Meta | tuple[Meta, Meta]:  # fmt: skip
    """Return the largest element of every window of sequences, and on request its position."""
    return _max_pool_by_name("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@op(out=False, method=False)
def max_pool2d(
    input: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0, dilation: int | Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Meta | tuple[Meta, Meta]:  # fmt: skip
    """Return the largest element of every window of images, and on request its position."""
    return _max_pool_by_name("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@op(out=False, method=False)
def max_pool3d(
    input: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0, dilation: int | Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Meta | tuple[Meta, Meta]:  # fmt: skip
    """Return the largest element of every window of volumes, and on request its position."""
    return _max_pool_by_name("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _check_mean(name: str, input: Meta) -> None:
    if input.dtype.category != FLOAT and input.dtype is not int64:
        raise DTypeError(f"{name}: not defined for {input.dtype.name}, with operand {input}")


def _mean_pooled(
    name: str, dims: int, input: Meta, kernel_size: Size, stride: Size | None, padding: int | Size, ceil_mode: bool,
    divisor_override: int | None = None,
) -> Meta:  # fmt: skip
    _check_dims(name, input, dims)
    _check_mean(name, input)
    if divisor_override == 0:
        raise ArgumentError(f"{name}: divisor must be not zero")
    numbers = windows(name, dims, kernel_size, stride, padding)
    _check_filled(name, input, dims)
    return _result(input, dims, pooled_size(name, input.shape[-dims:], numbers, ceil_mode), dims < 3)


@op(out=False, method=False)
def _avg_pool(
    input: Meta, kernel_size: Size, stride: Size, padding: Size, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None,
) -> Meta:  # fmt: skip
    """Compute the mean of every window."""
    dims = len(kernel_size)
    _check_each("_avg_pool", dims, stride=stride, padding=padding)
    return _mean_pooled("_avg_pool", dims, input, kernel_size, stride, padding, ceil_mode, divisor_override)


@op(out=False, method=False)
def _avg_pool_backward(
    grad_output: Meta, input_size: Size, kernel_size: Size, stride: Size, padding: Size, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Meta:  # fmt: skip
    """Spread the elements of the gradient evenly over their windows."""
    name, dims = "_avg_pool_backward", len(kernel_size)
    _check_each(name, dims, stride=stride, padding=padding)
    _check_dims(name, grad_output, dims)
    if len(input_size) != dims or min(input_size, default=0) <= 0:
        raise ShapeError(f"{name}: {list(input_size)} are not {dims} sizes")
    input = grad_output.like((*grad_output.shape[:-dims], *input_size))
    made = _mean_pooled(name, dims, input, kernel_size, stride, padding, ceil_mode, divisor_override)
    if made.shape != grad_output.shape:
        raise ShapeError(f"{name}: {grad_output} is not what pooling of {list(input_size)} gives")
    return _result(grad_output, dims, input_size, dims < 3)


@op(method=False)
def avg_pool1d(
    input: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Meta:  # fmt: skip
    """Compute the mean of every window of sequences."""
    return _mean_pooled("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode)


@op(method=False, module="nn.functional")
def avg_pool2d(
    input: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Meta:  # fmt: skip
    """Compute the mean of every window of images; ``divisor_override`` replaces the window's size."""
    return _mean_pooled("avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, divisor_override)


@op(method=False, module="nn.functional")
def avg_pool3d(
    input: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Meta:  # fmt: skip
    """Compute the mean of every window of volumes; ``divisor_override`` replaces the window's size."""
    return _mean_pooled("avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, divisor_override)


def parts(name: str, dims: int, input: Meta, output_size: tuple[int | None, ...] | None) -> Size:
    """Return the number of windows that every dimension is divided into; None among them keeps a size."""
    if not 1 <= dims <= 3 or input.ndim not in (dims + 1, dims + 2):
        raise ArgumentError(
            f"{name}: Input dimension should be at least {dims + 1} and at most {dims + 2}, got {input}"
        )
    if output_size is None or len(output_size) not in (1, dims):
        given = f"should contain one int or {dims}, got {output_size and list(output_size)}"
        raise ArgumentError(f"{name}: output_size must be {dims}: 'output_size' {given}")
    wanted = output_size * dims if len(output_size) == 1 else output_size
    size = tuple(n if w is None else w for n, w in zip(input.shape[-dims:], wanted, strict=True))
    if min(size) < 0:
        raise ArgumentError(f"{name}: elements of output_size must be greater than or equal to 0, got {list(size)}")
    if input.dtype.category != FLOAT:
        raise DTypeError(f"{name}: expected a floating-point tensor, got {input}")
    if 0 in input.shape[-dims:]:
        raise ShapeError(f"{name}: only batch and channels may be empty, got {input}")
    return size


def _divided(name: str, dims: int, input: Meta, output_size: tuple[int | None, ...]) -> Meta:
    return _result(input, dims, parts(name, dims, input, output_size), dims < 3)


@op(out=False, method=False)
def _adaptive_avg_pool(input: Meta, output_size: Size) -> Meta:
    """Compute the means of equal parts."""
    return _divided("_adaptive_avg_pool", len(output_size), input, output_size)


@op(out=False, method=False)
def _adaptive_avg_pool_backward(grad_output: Meta, input_size: Size) -> Meta:
    """Spread the elements of the gradient evenly over their parts."""
    name, dims = "_adaptive_avg_pool_backward", len(input_size)
    _check_dims(name, grad_output, dims)
    if min(input_size, default=0) <= 0 or grad_output.dtype.category != FLOAT:
        raise ShapeError(f"{name}: {grad_output} is not the gradient of parts of {list(input_size)}")
    return _result(grad_output, dims, input_size, dims < 3)


@op(out=False, method=False)
def adaptive_avg_pool1d(input: Meta, output_size: Size) -> Meta:
    """Compute the means of ``output_size`` equal parts of sequences."""
    return _divided("adaptive_avg_pool1d", 1, input, output_size)


@op(out=False, method=False, module="nn.functional")
def adaptive_avg_pool2d(input: Meta, output_size: list[int | None]) -> Meta:
    """Compute the means of ``output_size`` equal parts of images; None keeps a size."""
    return _divided("adaptive_avg_pool2d", 2, input, output_size)  # type: ignore[arg-type]


@op(out=False, method=False, module="nn.functional")
def adaptive_avg_pool3d(input: Meta, output_size: list[int | None]) -> Meta:
    """Compute the means of ``output_size`` equal parts of volumes; None keeps a size."""
    return _divided("adaptive_avg_pool3d", 3, input, output_size)  # type: ignore[arg-type]


@op(out=False, method=False, returns=("output", "indices"))
def _adaptive_max_pool(input: Meta, output_size: Size) -> tuple[Meta, Meta]:
    """Return the largest elements of equal parts, and their positions in the row-major picture."""
    return _divided_with_indices("_adaptive_max_pool", len(output_size), input, output_size)


def _divided_with_indices(name: str, dims: int, input: Meta, output_size: tuple[int | None, ...]) -> tuple[Meta, Meta]:
    output = _divided(name, dims, input, output_size)
    return output, output.like(dtype=int64, strides=output.strides)


def _adaptive_max(
    name: str, dims: int, input: Meta, output_size: list[int | None], return_indices: bool
) -> Meta | tuple[Meta, Meta]:
    results = _divided_with_indices(name, dims, input, output_size)  # type: ignore[arg-type]
    return results if return_indices else results[0]


@op(out=False, method=False, module="nn.functional")
def adaptive_max_pool1d(
    input: Meta, output_size: list[int | None], return_indices: bool = False
) -> Meta | tuple[Meta, Meta]:
    """Return the largest elements of ``output_size`` equal parts of sequences, and on request their positions."""
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


@op(out=False, method=False, module="nn.functional")
def adaptive_max_pool2d(
    input: Meta, output_size: list[int | None], return_indices: bool = False
) -> Meta | tuple[Meta, Meta]:
    """Return the largest elements of ``output_size`` equal parts of images, and on request their positions."""
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


@op(out=False, method=False, module="nn.functional")
def adaptive_max_pool3d(
    input: Meta, output_size: list[int | None], return_indices: bool = False
) -> Meta | tuple[Meta, Meta]:
    """Return the largest elements of ``output_size`` equal parts of volumes, and on request their positions."""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


def _unpooled_size(
    name: str,
    dims: int,
    input: Meta,
    kernel_size: Size,
    stride: Size | None,
    padding: int | Size,
    output_size: Size | None,
) -> Size:
    kernel, stride, padding, _ = windows(name, dims, kernel_size, stride, padding)
    rows = zip(input.shape[-dims:], kernel, stride, padding, strict=True)
    size = tuple((n - 1) * s - 2 * p + k for n, k, s, p in rows)
    if output_size is None:
        return size
    wanted = output_size[-dims:]
    if len(output_size) not in (dims, dims + 1, dims + 2):
        raise ArgumentError(f"{name}: output_size must have {dims} numbers, got {list(output_size)}")
    for n, asked, s in zip(size, wanted, stride, strict=True):
        if not n - s < asked < n + s:
            raise ArgumentError(f"{name}: output_size {list(wanted)} is too far from {list(size)}")
    return wanted


def unpooled(
    name: str, dims: int, input: Meta, indices: Meta, kernel_size: Size, stride: Size | None, padding: int | Size,
    output_size: Size | None,
) -> Meta:  # fmt: skip
    """Return the meta of the result of ``max_unpool``."""
    _check_dims(name, input, dims)
    if indices.shape != input.shape or indices.dtype is not int64:
        raise ShapeError(f"{name}: Expected shape of indices to be int64 of the shape of {input}, got {indices}")
    size = _unpooled_size(name, dims, input, kernel_size, stride, padding, output_size)
    return _result(input, dims, size, keeps_format=dims == 2)


@op(out=False, method=False, module="nn.functional")
def max_unpool1d(
    input: Meta, indices: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0,
    output_size: Size | None = None,
) -> Meta:  # fmt: skip
    """Put maxima back to the positions that ``max_pool1d`` returned; all other elements are zero."""
    return unpooled("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


@op(out=False, method=False, module="nn.functional")
def max_unpool2d(
    input: Meta, indices: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0,
    output_size: Size | None = None,
) -> Meta:  # fmt: skip
    """Put maxima back to the positions that ``max_pool2d`` returned; all other elements are zero."""
    return unpooled("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


@op(out=False, method=False, module="nn.functional")
def max_unpool3d(
    input: Meta, indices: Meta, kernel_size: Size, stride: Size | None = None, padding: int | Size = 0,
    output_size: Size | None = None,
) -> Meta:  # fmt: skip
    """Put maxima back to the positions that ``max_pool3d`` returned; all other elements are zero."""
    return unpooled("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)
