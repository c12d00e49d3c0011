"""Functions of the program that are applied to dual numbers: their ``jvp`` computes the tangents of the results."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from telegrad._ops.duals import DualTensor, duals
from telegrad._ops.functions import function
from telegrad._session.grad_mode import enable_grad, no_grad
from telegrad._session.thread_modes import thread
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError, NotSupportedError

_NO_BACKWARD = (
    "jvp: tangents of a custom autograd.Function that has no backward are not differentiated; define backward"
)


def apply_to_duals(
    owner: Any, has_rule: bool, has_backward: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Apply a function to arguments with dual numbers among them; ``has_rule`` tells whether it has a ``jvp``.

    What also requires a gradient, or belongs to several levels, is recorded, and tangents follow from ``backward``.
    Where there is none they follow from ``jvp``, and are not differentiated by the numbers that have tangents.
    """
    level = duals.levels[-1]
    shows_grad = thread.modes.records and any([tensor.requires_grad for tensor in tensors_in(args)])
    if has_rule and not (shows_grad and has_backward) and not level.depends_on_others(tensors_in(args)):
        return _by_rule(owner, level, args, kwargs)
    if not has_rule and not shows_grad and owner._has_no_jvp:
        raise NotSupportedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )
    duals.intercepts = False
    try:
        with enable_grad():
            result = owner._applied(args, kwargs)[0]
    finally:
        duals.intercepts = True
    for tensor in tensors_in((result,)):
        if tensor._is_tracked():
            duals.adopt(tensor, shows_grad)
    return result


def _by_rule(owner: Any, level: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = [argument for argument in args if isinstance(argument, Tensor)]
    tangents = dict(zip(map(id, given), level.tangents(given), strict=True))
    plain = [_alone(a) if isinstance(a, DualTensor) else a for a in args]
    duals.intercepts = False
    try:
        result, ctx = owner._applied(tuple(plain), kwargs)
    finally:
        duals.intercepts = True
    if ctx.saved_for_forward is not None:
        ctx._saved = ctx.saved_for_forward
    products = owner.jvp(ctx, *[_tangent(argument, tangents, ctx.materialize_grads) for argument in args])
    outputs = list(result) if isinstance(result, tuple) else [result]
    computed = list(products) if isinstance(products, tuple) else [products]
    if len(computed) != len(outputs):
        raise AutogradError(
            f"function {owner.__name__}: jvp returned {len(computed)} tangents for {len(outputs)} results of forward"
        )
    level.has_rules = True
    if thread.modes.records and any([a.requires_grad for a in args if isinstance(a, DualTensor)]):
        refusing = import_module("telegrad.autograd.function").refusing
        computed = [refusing(tangent, _NO_BACKWARD) for tangent in computed]
    made = [_dual(level, ctx, *pair, args, plain) for pair in zip(outputs, computed, strict=True)]
    return tuple(made) if isinstance(result, tuple) else made[0]


def _alone(dual: Tensor) -> Tensor:
    """Return the elements of a dual number, as a leaf that requires a gradient where it does."""
    with no_grad():
        return dual.detach().requires_grad_(dual.requires_grad)


def _tangent(argument: Any, tangents: dict[int, Tensor | None], materializes: bool) -> Tensor | None:
    if not isinstance(argument, Tensor):
        return None
    tangent = tangents[id(argument)]
    if tangent is None and materializes and argument.dtype.is_differentiable:
        with no_grad():
            zeros: Tensor = function("zeros_like")(argument.detach())
        return zeros
    return tangent


def _dual(level: Any, ctx: Any, output: Any, tangent: Any, args: Sequence[Any], plain: Sequence[Any]) -> Any:
    """Return a result with its tangent: a new dual number, or the argument that it was, if modified in place."""
    if tangent is None:
        return output
    is_differentiable = isinstance(output, Tensor) and output.dtype.is_differentiable
    if not is_differentiable or any([output is other for other in ctx._non_differentiable]):
        raise AutogradError(
            "jvp: a tangent was returned for a result that has no derivative. You should return None at that position "
            "instead"
        )
    if not isinstance(tangent, Tensor):
        raise AutogradError(f"jvp: expected a tensor or None as tangent, not {type(tangent).__name__}")
    if tuple(tangent.shape) != tuple(output.shape):
        raise AutogradError(f"jvp: the tangent {tangent._meta} does not have the shape of the result {output._meta}")
    made = level.dual(output, tangent)
    for argument, own in zip(args, plain, strict=True):
        if output is own and any([own is dirty for dirty in ctx._dirty]):
            argument._id, made._id = made._id, argument._id
            argument._requires_grad, argument._node = True, made._node
            duals.adopt(argument, False)
            return argument
    return made
