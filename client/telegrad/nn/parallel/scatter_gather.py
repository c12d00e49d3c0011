"""Splitting nested arguments over GPUs, and joining nested results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from telegrad._session.devices import DeviceLike
from telegrad._tensor.tensor import Tensor
from telegrad.cuda import comm
from telegrad_protocol.errors import ArgumentError, DeviceError


def _is_namedtuple(thing: Any) -> bool:
    return isinstance(thing, tuple) and hasattr(thing, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[DeviceLike], dim: int = 0) -> Any:
    """Split the tensors in tuples, lists and dictionaries over GPUs; everything else goes to all of them.

    Returns a list, or tuple, with one element per GPU that gets a part.
    """
    if isinstance(inputs, Tensor):
        return comm.scatter(inputs, target_gpus, None, dim)
    if _is_namedtuple(inputs):
        return [type(inputs)(*parts) for parts in _rows(inputs, target_gpus, dim)]
    if isinstance(inputs, tuple) and inputs:
        return _rows(inputs, target_gpus, dim)
    if isinstance(inputs, list) and inputs:
        return [list(parts) for parts in _rows(inputs, target_gpus, dim)]
    if isinstance(inputs, dict) and inputs:
        rows = _rows(inputs.items(), target_gpus, dim)
        return [type(inputs)(pairs) for pairs in rows]
    return [inputs for _ in target_gpus]


def _rows(items: Any, target_gpus: Sequence[DeviceLike], dim: int) -> list[tuple[Any, ...]]:
    return list(zip(*[scatter(item, target_gpus, dim) for item in items], strict=False))


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[DeviceLike], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split positional and keyword arguments; where one kind gives fewer parts, it is completed by empty ones."""
    scattered = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    scattered += [()] * (len(named) - len(scattered))
    named += [{} for _ in range(len(scattered) - len(named))]
    return tuple(scattered), tuple(named)


def gather(outputs: Sequence[Any], target_device: DeviceLike, dim: int = 0) -> Any:
    """Join the tensors in results of the same structure, one per GPU, on one device; -1 stands for the CPU."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return _gather_tensors(outputs, target_device, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(output) != len(first) for output in outputs):
            raise ArgumentError("gather: All dicts must have the same number of keys")
        return type(first)((key, gather([output[key] for output in outputs], target_device, dim)) for key in first)
    parts = [gather(row, target_device, dim) for row in zip(*outputs, strict=True)]
    return type(first)(*parts) if _is_namedtuple(first) else type(first)(parts)


def _gather_tensors(tensors: Sequence[Tensor], target_device: DeviceLike, dim: int) -> Tensor:
    if not all(tensor.is_cuda for tensor in tensors):
        raise DeviceError("gather: not implemented for CPU tensors; the outputs of replicas must be on GPUs")
    if dim == 0 and not any(tensor.ndim for tensor in tensors):
        warnings.warn(
            "Was asked to gather along dimension 0, but all input tensors were scalars; "
            "will instead unsqueeze and return a vector.",
            stacklevel=4,
        )
        tensors = [tensor.reshape(1) for tensor in tensors]
    return comm.gather(tensors, dim, target_device)
