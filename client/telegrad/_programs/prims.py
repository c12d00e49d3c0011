"""``torch._prims_common``: what libraries ask about types, shapes and strides."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod as _prod
from typing import Any

from telegrad._session.devices import as_device as canonicalize_device
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import layout as _layout
from telegrad_protocol import memory_format as _memory_format
from telegrad_protocol.errors import DTypeError, ShapeError
from telegrad_protocol.meta import Device

from .element_kinds import corresponding_complex_dtype as corresponding_complex_dtype
from .element_kinds import corresponding_real_dtype as corresponding_real_dtype
from .element_kinds import dtype_or_default as dtype_or_default
from .element_kinds import dtype_to_type as dtype_to_type
from .element_kinds import dtype_to_type_ctor as dtype_to_type_ctor
from .element_kinds import get_computation_dtype as get_computation_dtype
from .element_kinds import get_higher_dtype as get_higher_dtype
from .element_kinds import is_boolean_dtype as is_boolean_dtype
from .element_kinds import is_complex_dtype as is_complex_dtype
from .element_kinds import is_float_dtype as is_float_dtype
from .element_kinds import is_grad_dtype as is_grad_dtype
from .element_kinds import is_integer_dtype as is_integer_dtype
from .element_kinds import is_low_precision_dtype as is_low_precision_dtype
from .element_kinds import type_to_dtype as type_to_dtype
from .private.checks import _check_with

__all__ = ["canonicalize_device"]

ShapeType = StrideType = DimsType = DimsSequenceType = Sequence[int]
DimType = int
DeviceLikeType = str | Device | int
Number = bool | int | float | complex
NumberType = type[Number]
TensorLike = TensorLikeType = Tensor
TensorSequenceType = Sequence[Tensor]


def check(b: bool, s: Callable[[], str], exc_type: type[Exception] = RuntimeError) -> None:
    """Raise an error with the text that ``s`` gives where a condition does not hold."""
    _check_with(exc_type, b, s)


def canonicalize_dim(rank: int, idx: int, wrap_scalar: bool = True) -> int:
    """Return a dimension counted from the front."""
    return _layout.wrap_dim("canonicalize_dim", idx, rank if rank or not wrap_scalar else 1)


def canonicalize_dims(rank: int, indices: Any, wrap_scalar: bool = True) -> Any:
    """Return dimensions counted from the front."""
    if isinstance(indices, int):
        return canonicalize_dim(rank, indices, wrap_scalar)
    return tuple([canonicalize_dim(rank, index, wrap_scalar) for index in indices])


def is_valid_permutation(rank: int, perm: Any) -> bool:
    """Tell whether these are all dimensions, each once."""
    return isinstance(perm, Sequence) and sorted(perm) == list(range(rank))


def apply_perm(inp: Sequence[int], perm: Sequence[int]) -> list[int]:
    """Return what was at ``perm[i]`` at place ``i``."""
    return [inp[place] for place in perm]


def invert_perm(perm: Sequence[int]) -> list[int]:
    """Return the permutation that undoes this one."""
    return sorted(range(len(perm)), key=perm.__getitem__)


def is_same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Tell whether shapes are equal, element by element."""
    return tuple(a) == tuple(b)


same_shape = is_same_shape


def is_expandable_to(shape: Sequence[int], desired: Sequence[int]) -> bool:
    """Tell whether a tensor of one shape may be expanded to another."""
    if len(shape) > len(desired):
        return False
    return all(size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(desired), strict=False))


def infer_size_shapes(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that two shapes broadcast to."""
    return tuple(_layout.broadcast_shapes("infer_size", tuple(a), tuple(b)))


def infer_size(shape: Sequence[int], numel: int) -> tuple[int, ...]:
    """Return a shape with its -1 worked out from the number of elements."""
    return tuple(_layout.infer_size("infer_size", tuple(shape), numel))


def prod(xs: Sequence[int]) -> int:
    """Return the product of numbers."""
    return _prod(xs)


def reduction_dims(shape: Sequence[int], dims: Sequence[int] | None) -> tuple[int, ...]:
    """Return the dimensions that are reduced, counted from the front; None are all."""
    rank = len(shape)
    listed: tuple[int, ...] = tuple(range(rank)) if dims is None else canonicalize_dims(rank, dims)
    if len(set(listed)) != len(listed):
        raise ShapeError(f"duplicate value in the list of dims: {list(listed)}")
    return listed


def compute_reduction_output_shape(shape: Sequence[int], dimensions: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without some of its dimensions."""
    return tuple([size for place, size in enumerate(shape) if place not in dimensions])


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """Return the strides of a tensor in row-major order, else with columns innermost."""
    if row_major or len(shape) < 2:
        return tuple(_layout.contiguous_strides(tuple(shape)))
    rank = len(shape)
    order = [rank - 2, rank - 1, *reversed(range(rank - 2))]
    return tuple(_layout.strides_in_order(tuple(shape), order))


def make_channels_last_2d_strides_for(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of images whose channels are innermost."""
    return tuple(_memory_format.channels_last_strides(tuple(shape)))


make_channels_last_3d_strides_for = make_channels_last_strides_for = make_channels_last_2d_strides_for


def is_contiguous(a: Tensor) -> bool:
    """Tell whether elements lie in row-major order."""
    return a.is_contiguous()


is_contiguous_or_false = is_contiguous


def is_contiguous_for_memory_format(a: Tensor, *, memory_format: Any) -> bool:
    """Tell whether elements lie in a format of memory."""
    return a.is_contiguous(memory_format=memory_format)


is_contiguous_for_memory_format_or_false = is_contiguous_for_memory_format


def is_channels_last_contiguous(a: Tensor) -> bool:
    """Tell whether channels are innermost."""
    return a.ndim in (4, 5) and _memory_format.is_channels_last(tuple(a.shape), tuple(a.stride()))


is_channels_last_contiguous_2d = is_channels_last_contiguous_3d = is_channels_last_contiguous


def is_non_overlapping_and_dense(a: Tensor) -> bool:
    """Tell whether a tensor's elements fill its memory, each once."""
    return _layout.is_dense(tuple(a.shape), tuple(a.stride()))


is_non_overlapping_and_dense_or_false = is_non_overlapping_and_dense


def suggest_memory_format(x: Tensor) -> Any:
    """Return the format of memory that a tensor's strides suggest."""
    if x.ndim in (4, 5) and _memory_format.is_channels_last(tuple(x.shape), tuple(x.stride())):
        return _memory_format.channels_last if x.ndim == 4 else _memory_format.channels_last_3d
    return _memory_format.contiguous_format


def is_cpu_scalar_tensor(a: Any) -> bool:
    """Tell whether this is a tensor of no dimensions on the CPU."""
    return isinstance(a, Tensor) and a.ndim == 0 and a.device.type == "cpu"


def check_same_shape(*args: Any, allow_cpu_scalar_tensors: bool) -> None:
    """Raise ShapeError where tensors have several shapes; numbers are left out."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    shapes = {tuple(one.shape) for one in tensors if not (allow_cpu_scalar_tensors and is_cpu_scalar_tensor(one))}
    if len(shapes) > 1:
        raise ShapeError(f"Shapes {sorted(shapes)} are not equal")


def check_same_dtype(*args: Any) -> None:
    """Raise DTypeError where tensors have several types of elements; numbers are left out."""
    found = {one.dtype.name for one in args if isinstance(one, Tensor)}
    if len(found) > 1:
        raise DTypeError(f"Tensors of the types {sorted(found)} do not have the same type")


def extract_shape_from_varargs(shape: Any, validate: bool = True) -> Any:
    """Return the shape that was given as one sequence or as several numbers."""
    only = shape[0] if len(shape) == 1 else shape
    listed = only if isinstance(only, Sequence) else shape
    if validate and any(operator.index(size) < 0 for size in listed):
        raise ShapeError(f"Received an invalid shape {list(listed)}: sizes are not negative")
    return listed
