"""``out=`` of functions that are written in the client: their results are copied into existing tensors."""

from __future__ import annotations

from typing import Any

from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import can_cast
from telegrad_protocol.errors import ArgumentTypeError, AutogradError, DTypeError, ShapeError


def into(name: str, result: Any, out: Any) -> Any:
    """Return ``result``, or ``out`` with the elements of ``result``; ``name`` is the function that errors name.

    An empty target takes the shape of its result; any other must have it, and a type that holds the result's.
    """
    if out is None:
        return result
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    targets = (out,) if isinstance(out, Tensor) else tuple(out)
    if len(targets) != len(results) or not all(isinstance(target, Tensor) for target in targets):
        raise ArgumentTypeError(f"{name}: out must hold {len(results)} tensors")
    if thread.modes.records and any(tensor.requires_grad for tensor in (*results, *targets)):
        raise AutogradError(
            f"{name}: out= does not support differentiation, but a tensor requires grad; use no_grad() or leave out="
        )
    for target, tensor in zip(targets, results, strict=True):
        _write(name, target, tensor)
    return out


def _write(name: str, target: Tensor, tensor: Tensor) -> None:
    if not can_cast(tensor.dtype, target.dtype):
        raise DTypeError(f"{name}: result type {tensor.dtype.name} can't be cast to {target.dtype.name}")
    if target.shape == tensor.shape:
        target.copy_(tensor)
    elif target.numel() == 0:
        target._become(tensor.to(target.dtype))
    else:
        raise ShapeError(f"{name}: result of shape {list(tensor.shape)} does not fit into {target._meta}")
