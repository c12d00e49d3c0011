"""Resizing of sequences, images and volumes, and sampling at given places; ``nn.functional`` re-exports them.

Along one dimension a result is a sum of few products: of elements, whose positions are worked out here, and of weights.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad._functions.cast_as_one import cast_as_one
from telegrad._functions.composites import meshgrid
from telegrad._functions.creation import tensor
from telegrad._functions.gradients import with_zero_derivative
from telegrad._functions.memory.formats import in_format_of
from telegrad._ops.functions import function
from telegrad._session.own_code import note
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import float32, float64, int32, uint8
from telegrad_protocol.errors import ArgumentError, NotSupportedError, ShapeError

from .byte_images import combined_bytes
from .half_precision import computed_in_float32

Factors = Sequence[float | None]
_ALIGNMENT_HAS_CHANGED = "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0."
_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Resize (n, c, l), (n, c, h, w) or (n, c, d, h, w) to ``size``, or by ``scale_factor``.

    ``mode`` is nearest, nearest-exact, linear, bilinear, bicubic, trilinear or area. With ``align_corners`` the centers
    of the outermost elements stay where they are.
    """
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ArgumentError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    dims = input.ndim - 2
    if dims < 1:
        raise NotSupportedError(f"interpolate: Only 3D, 4D and 5D input Tensors supported, got {input._meta}")
    sizes, factors = _target(input, size, scale_factor, dims, bool(recompute_scale_factor))
    if antialias and not (mode in ("bilinear", "bicubic") and input.ndim == 4):
        raise ArgumentError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    if dims > 3 or not _takes(mode, dims):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the modes: nearest | "
            f"linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    if mode == "area":
        return function(f"adaptive_avg_pool{dims}d")(input, sizes)  # type: ignore[no-any-return]
    if min(*input.shape[2:], *sizes) < 1:
        raise ShapeError(f"interpolate: input and output sizes should be greater than 0, got {input._meta} to {sizes}")
    if mode.startswith("nearest"):
        made = _nearest(input, sizes, factors, mode)
    else:
        made = _weighted(input, sizes, factors, mode, bool(align_corners), antialias)
    return in_format_of(input, made.clone() if made is input else made)  # a result of the same size is a copy, too


def _takes(mode: str, dims: int) -> bool:
    return (
        mode in ("nearest", "nearest-exact", "area") or _LINEAR.get(mode) == dims or (mode == "bicubic" and dims == 2)
    )


def _target(input: Tensor, size: Any, scale: Any, dims: int, recompute: bool) -> tuple[tuple[int, ...], Factors]:
    """Return the size of the result, and the factor of each dimension where one was given and is to be used."""
    if size is not None and scale is not None:
        raise ArgumentError("only one of size or scale_factor should be defined")
    if size is not None:
        sizes = tuple(size) if isinstance(size, (list, tuple)) else (size,) * dims
        if len(sizes) != dims:
            raise ArgumentError(
                "Input and output must have the same number of spatial dimensions, but got input with spatial "
                f"dimensions of {list(input.shape[2:])} and output size of {size}."
            )
        if recompute:
            raise ArgumentError("recompute_scale_factor is not meaningful with an explicit size.")
        return tuple(int(n) for n in sizes), (None,) * dims
    if scale is None:
        raise ArgumentError("either size or scale_factor should be defined")
    factors = tuple(scale) if isinstance(scale, (list, tuple)) else (scale,) * dims
    if len(factors) != dims:
        raise ArgumentError(
            f"Input and scale_factor must have the same number of spatial dimensions, but got input with spatial "
            f"dimensions of {list(input.shape[2:])} and scale_factor of shape {scale}."
        )
    sizes = tuple(math.floor(n * float(factor)) for n, factor in zip(input.shape[2:], factors, strict=True))
    return sizes, (None,) * dims if recompute else tuple(map(float, factors))


def _ratio(size: int, wanted: int, factor: float | None, real: Any) -> Any:
    """Return how far apart in the input the neighbours of the result are."""
    return real(1.0 / factor) if factor is not None and factor > 0 else real(size) / real(wanted)


def _nearest(input: Tensor, sizes: Sequence[int], factors: Factors, mode: str) -> Tensor:
    for dim, (wanted, factor) in enumerate(zip(sizes, factors, strict=True), 2):
        size = input.shape[dim]
        if wanted == size and factor in (None, 1.0):
            continue
        half = np.float32(0.5 if mode == "nearest-exact" else 0.0)
        places = (np.arange(wanted, dtype=np.float32) + half) * _ratio(size, wanted, factor, np.float32)
        positions = np.minimum(np.floor(places).astype(np.int64), size - 1)
        input = input.index_select(dim, tensor(positions, device=input.device))
    return input


def _weighted(
    input: Tensor, sizes: Sequence[int], factors: Factors, mode: str, aligned: bool, antialias: bool
) -> Tensor:
    """Resize one dimension after the other; half precision is computed in float32, images of bytes in integers."""
    if input.dtype is uint8 and len(sizes) == 2:
        return _weighted_bytes(input, sizes, factors, mode, aligned, antialias)
    if not input.dtype.is_floating_point:
        raise NotSupportedError(f"interpolate: mode {mode!r} is not supported for {input._meta}; cast it to float32")
    kept = input.dtype
    input = input if kept in (float32, float64) else input.to(float32)
    real = np.float64 if kept is float64 else np.float32
    for dim, (wanted, factor) in enumerate(zip(sizes, factors, strict=True), 2):
        if wanted != input.shape[dim] or factor not in (None, 1.0):
            positions, weights = _neighbours(input.shape[dim], wanted, factor, mode, aligned, antialias, real)
            input = _combined(input, dim, positions, weights)
    return input if input.dtype is kept else input.to(kept)


def _weighted_bytes(
    input: Tensor, sizes: Sequence[int], factors: Factors, mode: str, aligned: bool, antialias: bool
) -> Tensor:
    """Resize an image of bytes, rows first; each of the two steps rounds to bytes."""
    result = input.to(int32)
    for dim in (3, 2):
        wanted, factor = sizes[dim - 2], factors[dim - 2]
        if wanted != input.shape[dim] or factor not in (None, 1.0):
            taps = _neighbours(input.shape[dim], wanted, factor, mode, aligned, antialias, np.float64)
            result = combined_bytes(result, dim, *taps)
    return result.to(uint8)


def _neighbours(
    size: int, wanted: int, factor: float | None, mode: str, aligned: bool, antialias: bool, real: Any
) -> tuple[Any, Any]:
    """Return the positions that the elements of a result are combined of along one dimension, and their weights."""
    scale = _ratio(size, wanted, factor, real)
    if aligned:
        scale = real(size - 1) / real(wanted - 1) if wanted > 1 else real(0)
    if antialias:
        return _antialiased(size, wanted, scale, mode, real)
    return _taps(size, wanted, scale, mode, aligned, real)


def _combined(input: Tensor, dim: int, positions: Any, weights: Any) -> Tensor:
    """Return the sum of the elements at rows of ``positions`` along a dimension, times rows of ``weights``."""
    shape = (-1, *(1,) * (input.ndim - dim - 1))
    total: Any = None
    for place, weight in zip(positions, weights, strict=True):
        factor = tensor(weight, dtype=input.dtype, device=input.device).reshape(shape)
        part = input.index_select(dim, tensor(place, device=input.device))
        total = part * factor if total is None else total.addcmul(part, factor)
    return total  # type: ignore[no-any-return]


def _taps(size: int, wanted: int, scale: Any, mode: str, aligned: bool, real: Any) -> tuple[Any, Any]:
    """Return the positions and weights of two neighbours, or of four for cubic interpolation."""
    numbers = np.arange(wanted, dtype=real)
    places = numbers * scale if aligned else (numbers + real(0.5)) * scale - real(0.5)
    if mode != "bicubic":
        places = np.maximum(places, 0)
    first = np.floor(places).astype(np.int64)
    if mode != "bicubic":
        first = np.minimum(first, size - 1)
    rest = (places - first).astype(real)
    if mode != "bicubic":
        rest = np.clip(rest, 0, 1)
        return [first, np.minimum(first + 1, size - 1)], [1 - rest, rest]
    weights = [_cubic(rest + 1, -0.75), _cubic(rest, -0.75), _cubic(1 - rest, -0.75), _cubic(2 - rest, -0.75)]
    return [np.clip(first + shift, 0, size - 1) for shift in (-1, 0, 1, 2)], weights


def _cubic(distance: Any, a: float) -> Any:
    """Return the weights of cubic convolution at distances up to 2 (R. Keys, 1981)."""
    x = np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0)).astype(x.dtype)


def _antialiased(size: int, wanted: int, scale: Any, mode: str, real: Any) -> tuple[Any, Any]:
    """Return positions and weights of a filter that is as wide as the elements of the result."""
    reach = (2.0 if mode == "bicubic" else 1.0) * max(float(scale), 1.0)
    centers = (np.arange(wanted) + 0.5) * float(scale)
    first = np.maximum((centers - reach + 0.5).astype(np.int64), 0)
    count = np.minimum((centers + reach + 0.5).astype(np.int64), size) - first
    offsets = np.arange(int(count.max()))[:, None]
    distance = (offsets + first - centers + 0.5) / max(float(scale), 1.0)
    weights = _cubic(distance, -0.5) if mode == "bicubic" else np.maximum(1 - np.abs(distance), 0)
    weights = np.where(offsets < count, weights, 0)
    weights = (weights / weights.sum(0)).astype(real)
    return np.clip(offsets + first, 0, size - 1), weights


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """The former name of ``interpolate``."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The former name of ``interpolate`` with the nearest elements."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The former name of ``interpolate`` of images with aligned corners."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Return the places that affine maps take a grid to: (n, 2, 3) -> (n, h, w, 2), or (n, 3, 4) -> (n, d, h, w, 3)."""
    if not theta.dtype.is_floating_point:
        raise ArgumentError(f"Expected theta to have floating point type, but got {theta.dtype}")
    dims = len(size) - 2
    if dims not in (2, 3):
        raise NotImplementedError("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms.")
    if tuple(theta.shape) != (size[0], dims, dims + 1):
        raise ArgumentError(
            f"Expected a batch of {dims}D affine matrices of shape {size[0]}x{dims}x{dims + 1}, got {theta._meta}"
        )
    if min(size) <= 0:
        raise ArgumentError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    if align_corners is None:
        note(_ALIGNMENT_HAS_CHANGED)
    axes = [_evenly(count, bool(align_corners), theta) for count in size[2:]]
    grids = meshgrid(*axes, indexing="ij")
    base = function("stack")([*reversed(grids), function("ones_like")(grids[0])], -1).reshape(1, -1, dims + 1)
    flat: Tensor = base.matmul(theta.transpose(1, 2))
    return flat.reshape(size[0], *size[2:], dims)


def _evenly(count: int, aligned: bool, like: Tensor) -> Tensor:
    """Return places from -1 to 1, rounded as PyTorch does: gradients depend on whether one is beside an element."""
    if count <= 1:
        return like.new_zeros(1)
    places: Tensor = function("linspace")(-1, 1, count, dtype=like.dtype, device=like.device)
    return places if aligned else places * (count - 1) / count


@cast_as_one
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Sample (n, c, h, w) at places (n, h', w', 2), or (n, c, d, h, w) at (n, d', h', w', 3), between -1 and 1."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ArgumentError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    dims = input.ndim - 2
    if dims not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != dims or grid.shape[0] != input.shape[0]:
        raise ShapeError(f"grid_sample(): expected matching shapes, got input {input._meta} and grid {grid._meta}")
    if mode == "bicubic" and dims == 3:
        raise NotImplementedError("grid_sample(): bicubic interpolation only supports 4D input")
    if align_corners is None:
        note(_ALIGNMENT_HAS_CHANGED)
    return _sampled(input, grid, mode, padding_mode, bool(align_corners))


@computed_in_float32
def _sampled(input: Tensor, grid: Tensor, mode: str, padding_mode: str, aligned: bool) -> Tensor:
    sizes, dims = tuple(input.shape[2:]), input.ndim - 2
    places = [_unnormalized(grid[..., dims - 1 - d], size, aligned) for d, size in enumerate(sizes)]
    if mode != "bicubic":
        places = [_padded(p, size, padding_mode, aligned) for p, size in zip(places, sizes, strict=True)]
    if mode == "nearest":
        input = with_zero_derivative(input, grid)
        return _at(input, [p.detach().round() for p in places], padding_mode, aligned)
    if mode == "bicubic":
        return _sampled_cubic(input, places, padding_mode, aligned)
    lows = [p.detach().floor() for p in places]
    rests = [p - low for p, low in zip(places, lows, strict=True)]
    total: Any = None
    for corner in range(2**dims):
        bits = [corner >> d & 1 for d in range(dims)]
        weight: Any = 1
        for bit, rest in zip(bits, rests, strict=True):
            weight = weight * (rest if bit else 1 - rest)
        part = _at(input, [low + bit for low, bit in zip(lows, bits, strict=True)], padding_mode, aligned)
        part = part * weight.unsqueeze(1)
        total = part if total is None else total + part
    return total  # type: ignore[no-any-return]


_INTERPOLATIONS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """``grid_sample`` with numbers for modes: bilinear, nearest, bicubic, and zeros, border, reflection."""
    if interpolation_mode not in range(3) or padding_mode not in range(3):
        raise ArgumentError(
            f"grid_sampler: modes are numbers from 0 to 2, got interpolation_mode={interpolation_mode!r} and "
            f"padding_mode={padding_mode!r}"
        )
    return grid_sample(input, grid, _INTERPOLATIONS[interpolation_mode], _PADDINGS[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def _unnormalized(place: Tensor, size: int, aligned: bool) -> Tensor:
    return (place + 1) * ((size - 1) / 2) if aligned else ((place + 1) * size - 1) / 2


def _padded(place: Tensor, size: int, padding_mode: str, aligned: bool) -> Tensor:
    """Return where a place is taken from: within the input, unless what is outside is zero."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
        if span <= 0:
            return place * 0
        distance = (place - low).abs()
        turns = (distance.detach() / span).floor()
        extra = distance - turns * span
        place = function("where")(turns % 2 == 0, extra + low, span - extra + low)
    return _within(place, size)


def _within(place: Tensor, size: int) -> Tensor:
    """Return a place moved into the input, and NaN to 0; from the outermost elements on it has no gradient."""
    inner = (place > 0) & (place < size - 1)
    return function("where")(inner, place, _clamped(place.detach(), size))  # type: ignore[no-any-return]


def _clamped(place: Any, size: int) -> Any:
    return place.nan_to_num(nan=0.0).clamp(0, size - 1)


def _at(input: Tensor, places: list[Tensor], padding_mode: str, aligned: bool) -> Tensor:
    """Return the elements at whole positions (n, ...), zeros outside: (n, c, ...)."""
    index: Any = 0
    inside: Any = None
    for place, size in zip(places, input.shape[2:], strict=True):
        kept = _clamped(place, size)
        here = kept == place
        inside = here if inside is None else inside & here
        index = index * size + kept
    n, c, out = input.shape[0], input.shape[1], tuple(places[0].shape[1:])
    flat = index.long().reshape(n, 1, -1).expand(n, c, -1)
    taken: Any = input.reshape(n, c, -1).gather(2, flat).reshape(n, c, *out)
    return taken.masked_fill(~inside.unsqueeze(1), 0)  # type: ignore[no-any-return]


def _sampled_cubic(input: Tensor, places: list[Tensor], padding_mode: str, aligned: bool) -> Tensor:
    lows = [p.detach().floor() for p in places]
    rests = [p - low for p, low in zip(places, lows, strict=True)]
    weights = [[_cubic_weight(rest, shift) for shift in (-1, 0, 1, 2)] for rest in rests]
    total: Any = None
    for i, by_row in enumerate(weights[0]):
        for j, by_column in enumerate(weights[1]):
            shifted = [low + (number - 1) for low, number in zip(lows, (i, j), strict=True)]
            shifted = [
                _padded(p, size, padding_mode, aligned) for p, size in zip(shifted, input.shape[2:], strict=True)
            ]
            part = _at(input, [p.round() for p in shifted], padding_mode, aligned) * (by_row * by_column).unsqueeze(1)
            total = part if total is None else total + part
    return total  # type: ignore[no-any-return]


def _cubic_weight(rest: Tensor, shift: int) -> Tensor:
    """Return the weight of the neighbour ``shift`` positions further, as a differentiable function of the rest."""
    a = -0.75
    x = rest + 1 if shift == -1 else rest if shift == 0 else 1 - rest if shift == 1 else 2 - rest
    near: Tensor = ((a + 2) * x - (a + 3)) * x * x + 1
    return near if shift in (0, 1) else (((x - 5) * x + 8) * x - 4) * a
