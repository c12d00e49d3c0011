"""Fractional max pooling: B. Graham, Fractional max-pooling (2015). ``nn.functional`` re-exports the functions.

Windows have one size; where they begin is drawn for every channel of every sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._functions.cast_as_one import cast_as_one
from telegrad._functions.gradients import with_zero_derivative
from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ShapeError

from .windows import Numbers, spread


def _starts(samples: Tensor, size: int, wanted: int, kernel: int) -> Tensor:
    """Return where the windows of one dimension begin: (n, c) samples in [0, 1) -> (n, c, wanted)."""
    last = function("full")((*samples.shape, 1), size - kernel, dtype=samples.dtype, device=samples.device)
    if wanted == 1:
        return last.long()  # type: ignore[no-any-return]
    step = (size - kernel) / (wanted - 1)
    numbers = function("arange")(wanted - 1, dtype=samples.dtype, device=samples.device)
    moved = samples.unsqueeze(-1)
    starts = ((numbers + moved) * step).floor() - (moved * step).floor()
    return function("cat")([starts, last], -1).long()  # type: ignore[no-any-return]


def _pool(
    dims: int, input: Tensor, kernel_size: Numbers, output_size: Any, output_ratio: Any, samples: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the largest element of each window, and its position."""
    name = f"fractional_max_pool{dims}d"
    if input.ndim not in (dims + 1, dims + 2):
        raise ShapeError(f"{name}: expected {dims + 1}D or {dims + 2}D input, got {input._meta}")
    if output_size is None and output_ratio is None:
        raise ArgumentError(f"{name} requires specifying either an output_size or an output_ratio")
    batched = input if input.ndim == dims + 2 else input.unsqueeze(0)
    n, c, *sizes = batched.shape
    if output_size is None:
        ratios = tuple(output_ratio) if isinstance(output_ratio, Sequence) else (output_ratio,) * dims
        output_size = [int(size * ratio) for size, ratio in zip(sizes, ratios, strict=True)]
    wanted, kernel = spread("output_size", output_size, dims), spread("kernel_size", kernel_size, dims)
    if any(w < 1 or w + k - 1 > s for w, k, s in zip(wanted, kernel, sizes, strict=True)):
        raise ArgumentError(f"{name}: {list(wanted)} windows of {list(kernel)} do not fit into {input._meta}")
    if samples is None:
        samples = function("rand")((n, c, dims), dtype=input.dtype, device=input.device)
    samples = samples[:n]
    places: Any = 0
    for dim, (size, count, width) in enumerate(zip(sizes, wanted, kernel, strict=True)):
        own = samples[:, :, dims - 1 - dim if dims == 2 else dim]
        inside = _starts(own, size, count, width).unsqueeze(-1) + function("arange")(width, device=input.device)
        shape = [1] * (2 * dims)
        shape[dim], shape[dims + dim] = count, width
        places = places * size + inside.reshape(n, c, *shape)
    flat = places.reshape(n, c, -1)
    windows = with_zero_derivative(batched).reshape(n, c, -1).gather(2, flat).reshape(n, c, *wanted, -1)
    values, chosen = windows.max(-1)
    positions = flat.reshape(n, c, *wanted, -1).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    return (values, positions) if input.ndim == dims + 2 else (values.squeeze(0), positions.squeeze(0))


def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: Numbers, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``fractional_max_pool2d`` with the positions of the maxima."""
    return _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)


def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: Numbers, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``fractional_max_pool3d`` with the positions of the maxima."""
    return _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)


@cast_as_one
def fractional_max_pool2d(
    input: Tensor, kernel_size: Numbers, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """The largest elements of windows of images that begin at random."""
    both = _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return both if return_indices else both[0]


@cast_as_one
def fractional_max_pool3d(
    input: Tensor, kernel_size: Numbers, output_size: Any = None, output_ratio: Any = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """The largest elements of windows of volumes that begin at random."""
    both = _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return both if return_indices else both[0]
