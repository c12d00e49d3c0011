"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from telegrad._ops.functions import function
from telegrad._ops.operand_classes import overrides
from telegrad._tensor.tensor import Tensor
from telegrad.nn.modules.batchnorm import _BatchNorm
from telegrad.nn.utils.stateless import call_with
from telegrad_protocol.errors import ArgumentError


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with these in the place of its parameters and buffers."""
    if isinstance(parameter_and_buffer_dicts, dict):
        replaced = parameter_and_buffer_dicts
    elif not isinstance(parameter_and_buffer_dicts, Sequence):
        raise ArgumentError(
            "functional_call: Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    else:
        replaced = {}
        for part in parameter_and_buffer_dicts:
            if not isinstance(part, dict):
                raise ArgumentError("functional_call: Expected all elements of parameter_and_buffer_dicts to be dicts")
            twice = replaced.keys() & part.keys()
            if twice:
                raise ArgumentError(f"functional_call: {sorted(twice)} appeared in several dictionaries")
            replaced |= part
    given = () if args is None else args
    return call_with(module, replaced, given, kwargs, tie_weights, strict)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the buffers of models of one kind, stacked along a new first dimension."""
    if not len(models):
        raise ArgumentError("stack_module_state: Expected at least one model, got 0.")
    if any(model.training is not models[0].training for model in models):
        raise ArgumentError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(model) is not type(models[0]) for model in models):
        raise ArgumentError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(model.named_parameters()) for model in models]
    buffers = [dict(model.named_buffers()) for model in models]
    return (
        {name: _stacked([state[name] for state in parameters]) for name in parameters[0]},
        {name: _stacked([state[name] for state in buffers]) for name in buffers[0]},
    )


def _stacked(tensors: list[Tensor]) -> Tensor:
    stacked: Tensor = function("stack")([tensor.detach() for tensor in tensors])
    return stacked.requires_grad_() if tensors[0].requires_grad else stacked


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Take the running statistics from all batch normalizations of a module, so that each call uses its own batch."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function that does what ``func`` does, and whose graph by ``make_fx`` has no operations in place.

    What the function is given and writes into is copied back at the end of the graph. With ``"mutations_and_views"`` it
    has no views either, but copies.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise ArgumentError(f"functionalize: remove must be 'mutations' or 'mutations_and_views', not {remove!r}")

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for mode in overrides.dispatch_modes:
            if hasattr(mode, "removes"):  # what traces the function
                mode.removes = remove
        return func(*args, **kwargs)

    return wrapped


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """Return the tensor: functions that differentiate or map pass on tensors without a wrapper."""
    return tensor
