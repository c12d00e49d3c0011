"""Calling modules, each with its own arguments and on its own GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._session.devices import DeviceLike, gpu_of
from telegrad._tensor.tensor import Tensor
from telegrad.cuda.devices import device as current_gpu_block
from telegrad.nn.modules.module import Module
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.meta import Device


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[DeviceLike] | None = None,
) -> list[Any]:  # fmt: skip
    """Call each module with its inputs, its GPU being the current one; by default that of its first tensor.

    An exception is raised as it is, with a note that says which replica raised it.
    """
    count = len(modules)
    named = [{}] * count if kwargs_tup is None else kwargs_tup
    places = [None] * count if devices is None else devices
    if not len(inputs) == len(named) == len(places) == count:
        raise ArgumentError(
            f"parallel_apply: expected inputs, keyword arguments and devices for each of {count} modules, "
            f"got {len(inputs)}, {len(named)} and {len(places)}"
        )
    return [_call(number, *row) for number, row in enumerate(zip(modules, inputs, named, places, strict=True))]


def _call(number: int, module: Module, inputs: Any, kwargs: dict[str, Any], device: DeviceLike) -> Any:
    gpu = _gpu_of((inputs, kwargs)) if device is None else gpu_of("parallel_apply", device)
    try:
        with current_gpu_block(gpu):
            return module(*(inputs if isinstance(inputs, (list, tuple)) else (inputs,)), **kwargs)
    except Exception as error:
        error.add_note(f"in replica {number} on device {gpu}")
        raise


def _gpu_of(argument: Any) -> Device | None:
    """Return the GPU of the first tensor in nested arguments; None if there is none on a GPU."""
    if isinstance(argument, Tensor):
        return argument.device if argument.is_cuda else None
    items = argument.values() if isinstance(argument, dict) else argument if isinstance(argument, (list, tuple)) else ()
    return next((gpu for gpu in map(_gpu_of, items) if gpu is not None), None)
