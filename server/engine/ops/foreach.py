"""The ``_foreach_`` family: one operation on every tensor of a list.

Lists whose tensors have one floating-point dtype go through ``_foreach_apply_``, which a GPU runs as one multi-tensor
launch. All other lists, and those that gradients flow through, are computed tensor by tensor.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from server.engine import context
from server.engine import functional as F
from server.engine.autograd.inplace import requires_grad
from server.engine.device import cancellation
from server.engine.operators import OPERATORS, Single
from server.engine.registry import comes_to, composite, implements
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import PUBLIC
from telegrad_protocol.ops import foreach as ops

EXPRESSIONS = {
    "abs": lambda xp, s, a: xp.abs(a),
    "neg": lambda xp, s, a: xp.negative(a),
    "sqrt": lambda xp, s, a: xp.sqrt(a),
    "rsqrt": lambda xp, s, a: 1 / xp.sqrt(a),
    "exp": lambda xp, s, a: xp.exp(a),
    "log": lambda xp, s, a: xp.log(a),
    "reciprocal": lambda xp, s, a: 1 / a,
    "tanh": lambda xp, s, a: xp.tanh(a),
    "copy_": lambda xp, s, a: a,
    "add_number": lambda xp, s, a: a + s,
    "sub_number": lambda xp, s, a: a - s,
    "mul_number": lambda xp, s, a: a * s,
    "div_number": lambda xp, s, a: a / s,
    "add": lambda xp, s, a, b: a + s * b,
    "sub": lambda xp, s, a, b: a - s * b,
    "mul": lambda xp, s, a, b: a * b,
    "div": lambda xp, s, a, b: a / b,
    "maximum": lambda xp, s, a, b: xp.maximum(a, b),
    "minimum": lambda xp, s, a, b: xp.minimum(a, b),
    "addcmul": lambda xp, s, a, b, c: a + s * b * c,
    "addcdiv": lambda xp, s, a, b, c: a + s * (b / c),
    "lerp_number": lambda xp, s, a, b: a + s * (b - a) if s < 0.5 else b - (1 - s) * (b - a),
}


"""By name: functions of the array library, a scalar s, and up to three operands."""


@implements(ops._foreach_apply_, movement=True)
def _foreach_apply_(xp, tensors, expression, first, second, third, scalars):
    compute = EXPRESSIONS[expression]
    lists = [tensor_list for tensor_list in (first, second, third) if tensor_list]
    for i, target in enumerate(tensors):
        if cancellation.requested:
            cancellation.stop()
        operands = [tensor_list[i] for tensor_list in lists]
        wide = [o.astype(np.float32) if o.itemsize == 2 else o for o in operands]
        target[...] = compute(xp, scalars[i], *wide)


@composite(ops._foreach_norm)
def _foreach_norm(self, ord):
    return tuple([F.norm(value, ord) for value in self])


@composite(ops._foreach_copy_)
def _foreach_copy_(self, src, non_blocking):
    if not _apply("copy_", self, (src,), 0.0):
        for target, source in zip(self, src, strict=True):
            F.copy_(target, source)


def _rows(operands):
    """The arguments of the operation for every tensor: the lists are transposed, scalars are repeated."""
    return [[o[i] if isinstance(o, tuple) else o for o in operands] for i in range(len(operands[0]))]


def _needs_gradients(operands):
    """Whether the current mode records gradients and one of the operands requires them."""
    if not context.current.grad_enabled or context.current.inference:
        return False
    lists = [o if isinstance(o, tuple) else (o,) for o in operands]
    return any(requires_grad(value) for tensor_list in lists for value in tensor_list if isinstance(value, Value))


def _apply(expression, targets, lists, scalars):
    """Run an expression over whole lists; False if dtypes, devices or shapes differ, and nothing was computed."""
    if not _is_one_expression(expression, targets, lists, scalars):
        return False
    F._foreach_apply_(*_arguments(targets, expression, lists, scalars))
    return True


def _is_one_expression(expression, targets, lists, scalars):
    """Whether ``_foreach_apply_`` takes these lists of tensors, or of their metas."""
    first = targets[0]
    if expression not in ops.EXPRESSIONS or not first.dtype.is_floating_point or not _are_real(scalars):
        return False
    for row in zip(targets, *lists, strict=True):
        if cancellation.requested:
            cancellation.stop()
        if any(v.dtype is not first.dtype or v.shape != row[0].shape or v.device != first.device for v in row):
            return False
    return True


def _arguments(targets, expression, lists, scalars):
    """The arguments of ``_foreach_apply_``."""
    scalars = scalars if isinstance(scalars, tuple) else (scalars,) * len(targets)
    return (targets, expression, *lists, *((),) * (3 - len(lists)), scalars)


def _are_real(scalars):
    scalars = scalars if isinstance(scalars, tuple) else (scalars,)
    return all(isinstance(scalar, (int, float)) for scalar in scalars)


def _expression_of(name, overload, operands, options):
    """An operation as an expression: the expression's name, its lists of tensors, and its scalars."""
    lists = tuple([operand for operand in operands if _holds_values(operand)])
    scalars = next((operand for operand in operands if not _holds_values(operand)), 1.0)
    scalars = options.get("alpha", options.get("value", scalars))
    is_number = overload in ("Scalar", "ScalarList") and name not in ops.TERNARY
    return (f"{name}_number" if is_number else name), lists, scalars


def _holds_values(operand):
    return isinstance(operand, tuple) and isinstance(operand[0], (Value, Meta))


def _have_one_dtype(lists):
    """Whether all tensors have one floating-point dtype, so that results have it too."""
    return (
        len({value.dtype for tensor_list in lists for value in tensor_list}) == 1
        and lists[0][0].dtype.is_floating_point
    )


def _tensor_by_tensor(name, overload, operands, options):
    takes_scalar = overload in ("Scalar", "ScalarList") and name not in ops.TERNARY
    run = getattr(F, ops.of_number(name) if takes_scalar else name)
    if name in ops.TERNARY and overload == "ScalarList":
        return [run(*row[:-1], value=row[-1]) for row in _rows(operands)]
    return [run(*row, **options) for row in _rows(operands)]


def _out_of_place(name, overload, *operands, **options):
    """The form of an operation that returns new tensors."""
    operands, options = _move_value(name, overload, operands, options)
    expression, lists, scalars = _expression_of(name, overload, operands, options)
    if overload != "Tensor" and not _needs_gradients(operands) and _have_one_dtype(lists):
        results = tuple([F.empty_like(value) for value in lists[0]])
        if _apply(expression, results, lists, scalars):
            return results
    return tuple(_tensor_by_tensor(name, overload, operands, options))


def _in_place(public, name, overload, *operands, **options):
    """The form of an operation that writes into the first list."""
    if _needs_gradients(operands):
        raise AutogradError(f"{public}: gradients do not flow through in-place forms; call it under no_grad")
    operands, options = _move_value(name, overload, operands, options)
    expression, lists, scalars = _expression_of(name, overload, operands, options)
    if overload == "Tensor" or not _apply(expression, lists[0], lists, scalars):
        results = _tensor_by_tensor(name, overload, operands, options)
        for target, result in zip(operands[0], results, strict=True):
            F.copy_(target, result)


def _comes_to(contract, name, overload, records, *args):
    """The one expression that an in-place form comes to, for operands that are not tensors alone."""
    keywords = [param.name for param in contract.params[contract.positional :]]
    operands, options = args[: contract.positional], dict(zip(keywords, args[contract.positional :], strict=True))
    operands, options = _move_value(name, overload, operands, options)
    if records or overload == "Tensor" or not args[0]:
        return None
    expression, lists, scalars = _expression_of(name, overload, operands, options)
    if not _is_one_expression(expression, lists[0], lists, scalars):
        return None
    at = [position for position, arg in enumerate(args) if _holds_values(arg)]
    numbers = [position for position, arg in enumerate(args) if not _holds_values(arg)]
    return Single(OPERATORS[ops._foreach_apply_.name], partial(_bound, expression, at, numbers), None)


def _bound(expression, lists, numbers, args):
    """The arguments of ``_foreach_apply_``, where those of the form are lists and at most one number."""
    scalars = args[numbers[0]] if numbers else 1.0
    return _arguments(args[0], expression, [args[position] for position in lists], scalars)


def _move_value(name, overload, operands, options):
    """Operands and options, where a ``value`` given by position is moved into the options."""
    if name in ops.TERNARY and overload == "Scalar" and len(operands) == 4:
        return operands[:3], {"value": operands[3]}
    return operands, options


def _register():
    for public, contracts in PUBLIC.items():
        name = public.removeprefix("_foreach_").rstrip("_")
        if not public.startswith("_foreach_") or name not in (*ops.UNARY, *ops.BINARY, *ops.TERNARY, "lerp"):
            continue
        for contract in contracts:
            overload = contract.name.partition(".")[2]
            is_inplace = public.endswith("_")
            run = partial(_in_place, public) if is_inplace else _out_of_place
            composite(contract)(partial(run, name, overload))
            if is_inplace:
                comes_to(contract)(partial(_comes_to, contract, name, overload))


_register()
