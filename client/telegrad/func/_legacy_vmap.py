"""``torch._vmap_internals``: the first form of ``vmap``, whose functions return a tensor or a tuple of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final
from warnings import warn

from telegrad._batching import handler as _handler
from telegrad._ops.batching import Level, batching, entered
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from . import _vmap_steps as _steps

_ADVICE: Final = "Please use `torch.vmap` instead of `torch._vmap_internals.vmap`."


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """Return `_vmap`'s function, with the warning that PyTorch gives to those who call this name."""
    warn(_ADVICE, FutureWarning, stacklevel=2)
    return _vmap(func, in_dims, out_dims)


def _vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False
) -> Callable[..., Any]:
    """Return a function that computes ``func`` for each element along ``in_dims`` and stacks the results.

    With ``allow_none_pass_through`` a None in the tuple that ``func`` returns stays None, as gradients of operands that
    do not matter are. Raises ArgumentError for other results, and where ``in_dims`` and ``out_dims`` do not fit.
    """

    @wraps(func)
    def wrapped(*args: Any) -> Any:
        size, dims, given, spec = _steps._process_batched_inputs(in_dims, args, func)
        _handler.enter()
        with entered(Level(size, "error", batching.derivatives)) as number:
            outputs = func(*_steps._create_batched_inputs(dims, given, number, spec))
            results = outputs if isinstance(outputs, tuple) else (outputs,)
            places = _places(out_dims, len(results), func)
            _check_results(results, func, allow_none_pass_through)
            stacked = [
                None if result is None else _steps._remove_batch_dim(result, number, size, place)
                for result, place in zip(results, places, strict=True)
            ]
        return tuple(stacked) if isinstance(outputs, tuple) else stacked[0]

    return wrapped


def _places(out_dims: Any, count: int, func: Callable[..., Any]) -> tuple[int, ...]:
    """Return the dimension of the batch in each result."""
    places = out_dims if isinstance(out_dims, tuple) else (out_dims,) * count
    call = f"vmap({_steps._get_name(func)}, ..., out_dims={out_dims})"
    if not all([isinstance(place, int) for place in places]):
        raise ArgumentError(f"{call}: `out_dims` must be an int or a tuple of int")
    if len(places) != count:
        raise ArgumentError(f"{call}: `out_dims` must have one dim per output (got {count} outputs)")
    return places


def _check_results(results: tuple[Any, ...], func: Callable[..., Any], allows_none: bool) -> None:
    for number, result in enumerate(results):
        if not (isinstance(result, Tensor) or (allows_none and result is None)):
            name = _steps._get_name(func)
            raise ArgumentError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(result)} for return {number}"
            )
