"""Runs calls of operators: the keys of a call, the kernel that they select, and what it may return."""

from __future__ import annotations

from typing import Any, Final

from telegrad._batching.tensor import innermost_of
from telegrad._batching.user_rules import element_by_element
from telegrad._dispatch.asking import is_asked
from telegrad._ops import overriding
from telegrad._ops.batching import batching
from telegrad._ops.operand_classes import DISPATCHING, HANDLERS, overrides
from telegrad._session.thread_modes import thread
from telegrad._tensor.layouts import sparse_coo, strided
from telegrad._tensor.listed import tensors_in
from telegrad._tensor.tensor import Tensor
from telegrad.nn.parameter import Parameter
from telegrad_protocol.errors import NotSupportedError, OperatorError
from telegrad_protocol.meta import Device

from . import keys
from .operator_entry import ASKS, Operator
from .python_key import answer
from .schemas.types import FunctionSchema
from .state import state

_PLAIN: Final = (Tensor, Parameter)
_CPU: Final = keys.BACKENDS["cpu"]


def keys_of_tensor(tensor: Tensor) -> int:
    """Return the keys that a tensor brings to a call."""
    device = tensor._meta.device.type
    layout: Any = strided if tensor.__class__ in _PLAIN else tensor.layout
    if layout is not strided:
        return keys.SPARSE[f"{'coo' if layout is sparse_coo else 'compressed'}_{device}"]
    mask = keys.BACKENDS.get(device, _CPU)
    return mask & ~keys.AUTOGRAD if tensor._is_inference else mask | keys.INPLACE_OR_VIEW


def keys_of_call(values: list[Any]) -> int:
    """Return the keys of a call with these arguments, under the modes of the thread."""
    mask = 0
    for tensor in tensors_in(values):
        mask |= keys_of_tensor(tensor)
    if not mask:
        named = [value for value in values if isinstance(value, Device)]
        mask = keys.BACKENDS.get(named[0].type, _CPU) if named else _CPU
    modes = thread.modes
    if modes.autocast is not None:
        for device in thread.autocast.enabled:
            if mask & keys.BACKENDS.get(device, 0):
                mask |= keys.AUTOCAST.get(device, 0)
    if modes.inference:
        mask &= ~keys.AUTOGRAD
    if batching.levels and innermost_of(values):
        mask |= keys.BATCHED
    if (overrides.dispatch_modes or DISPATCHING) and is_asked(values):
        mask |= keys.PYTHON
    return (mask | state.included) & ~state.excluded


def call(overload: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator as a program does: its arguments are checked, and classes and modes that override it are asked.

    Raises OperatorError where the arguments or the results do not fit the schema, NotSupportedError where no kernel
    computes the operator for these arguments.
    """
    try:
        args, kwargs = operator.binder.bind(args, kwargs)
    except OperatorError as error:
        return answered_by_classes(overload, args, kwargs, error)
    values = [*args, *kwargs.values()] if kwargs else list(args)
    if overrides.modes or HANDLERS:
        relevant = () if overrides.are_disabled else overriding.overriding_of(values)
        if overrides.modes or relevant:
            return overriding.dispatch(overload, relevant, args, kwargs)
    return redispatch(overload, operator, keys_of_call(values), args, kwargs)


def answered_by_classes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: OperatorError) -> Any:
    """Return what classes of arguments that are no tensors answer; raise the error of the arguments if none does."""
    relevant = [] if overrides.are_disabled else overriding.overriding_of((*args, *kwargs.values()))
    if not relevant:
        raise error
    return overriding.dispatch(func, relevant, args, kwargs)


def redispatch(overload: Any, operator: Operator, of_call: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the kernel of the highest of these keys."""
    selected = operator.select(of_call)
    if selected is None:
        raise _no_kernel(operator, of_call)
    kernel = selected[1]
    if of_call & keys.BATCHED and _needs_elements(operator, selected[0]):
        return element_by_element(overload, args, kwargs)
    if kernel is ASKS:
        return answer(overload, operator, args, kwargs)
    if kernel.takes_keys:
        result = kernel.function(keys.DispatchKeySet(of_call), *args, **kwargs)
    else:
        result = kernel.function(*args, **kwargs)
    return checked_result(operator.schema, result)


def _needs_elements(operator: Operator, key: Any) -> bool:
    """Return whether a call with batched operands goes to a kernel of the program that knows nothing of batches."""
    return operator.asks_python and not keys.BATCHED >> key & 1 and not operator.has("CompositeImplicitAutograd")


def _no_kernel(operator: Operator, of_call: int) -> NotSupportedError:
    backend = keys.DispatchKeySet(of_call & (1 << keys.DispatchKey.BackendSelect) - 1).highestPriorityTypeId()
    name = operator.name
    if backend.name == "Meta":
        return NotSupportedError(
            f"{name}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel "
            "registered; register one with torch.library.register_fake"
        )
    known = ", ".join(sorted(keys.DispatchKey(key).name for key in operator.kernels))
    return NotSupportedError(
        f"Could not run '{name}' with arguments from the '{backend.name}' backend. This could be because the operator "
        f"doesn't exist for this backend. '{name}' is only available for these backends: [{known}]."
    )


def checked_result(schema: FunctionSchema, result: Any) -> Any:
    """Return what a kernel has returned as the schema has it; OperatorError where it is something else."""
    returns = schema.returns
    if len(returns) == 1:
        kind = returns[0].type.kind
        if kind == "Tensor":
            if result is not None and not isinstance(result, Tensor):
                raise OperatorError(f"{schema.name}: Unable to cast {result!r} to Tensor")
        elif kind == "list":
            return _list(schema, result)
        return result
    if not returns:
        if result is not None and not schema.is_varret:
            raise OperatorError(f"Expected the kernel of {schema.name} to return None but it returned something else")
        return result
    if result is None or not isinstance(result, (tuple, list)):
        raise OperatorError(f"{schema.name}: expected {len(returns)} results, and the kernel returned {result!r}")
    if len(result) != len(returns):
        raise OperatorError(f"{schema.name}: expected {len(returns)} results, and the kernel returned {len(result)}")
    return tuple(result) if type(result) is list else result


def _list(schema: FunctionSchema, result: Any) -> Any:
    if result is not None and not isinstance(result, (tuple, list)):
        raise OperatorError(f"{schema.name}: Unable to cast {result!r} to {schema.returns[0].type}")
    return list(result) if result is not None else None
