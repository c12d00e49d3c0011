"""The ``_foreach_`` family: an operation on each tensor of a list.

Lists of one floating-point type go through ``_foreach_apply_``, which a GPU runs in one launch; all else, and what
gradients flow through, is computed tensor by tensor.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from server.engine import context
from server.engine import functional as F
from server.engine.autograd.inplace import requires_grad
from server.engine.registry import composite, implements
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.ops import PUBLIC
from telegrad_protocol.ops import foreach as ops

_NUMERIC = {
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


@implements(ops._foreach_apply_, movement=True)
def _foreach_apply_(xp, tensors, expression, first, second, third, scalars):
    compute = _NUMERIC[expression]
    lists = [one for one in (first, second, third) if one]
    for number, target in enumerate(tensors):
        operands = [one[number] for one in lists]
        wide = [o.astype(np.float32) if o.itemsize == 2 else o for o in operands]
        target[...] = compute(xp, scalars[number], *wide)


@composite(ops._foreach_norm)
def _foreach_norm(self, ord):
    return tuple([F.norm(value, ord) for value in self])


@composite(ops._foreach_copy_)
def _foreach_copy_(self, src, non_blocking):
    if not _apply("copy_", self, (src,), 0.0):
        for target, source in zip(self, src, strict=True):
            F.copy_(target, source)


def _rows(operands):
    """One tensor of each list, and the numbers, for each place."""
    return [[o[i] if isinstance(o, tuple) else o for o in operands] for i in range(len(operands[0]))]


def _records(operands):
    """Whether gradients flow through what is computed of these."""
    if not context.current.grad_enabled or context.current.inference:
        return False
    lists = [o if isinstance(o, tuple) else (o,) for o in operands]
    return any(requires_grad(value) for one in lists for value in one if isinstance(value, Value))


def _apply(expression, targets, lists, scalars):
    """Run an expression over lists at once, if they are of one floating-point type, place and shape each."""
    scalars = scalars if isinstance(scalars, tuple) else (scalars,) * len(targets)
    first = targets[0]
    if expression not in ops.EXPRESSIONS or not first.dtype.is_floating_point or not _are_plain(scalars):
        return False
    for row in zip(targets, *lists, strict=True):
        if any(v.dtype is not first.dtype or v.shape != row[0].shape or v.device != first.device for v in row):
            return False
    F._foreach_apply_(targets, expression, *(lists + ((),) * (3 - len(lists))), scalars)
    return True


def _are_plain(scalars):
    return all(isinstance(scalar, (int, float)) for scalar in scalars)


def _parts(each, overload, operands, options):
    """An operation as an expression: its name, its lists, and its numbers."""
    lists = tuple([operand for operand in operands if _holds_values(operand)])
    numbers = next((operand for operand in operands if not _holds_values(operand)), 1.0)
    numbers = options.get("alpha", options.get("value", numbers))
    is_number = overload in ("Scalar", "ScalarList") and each not in ops.TERNARY
    return (f"{each}_number" if is_number else each), lists, numbers


def _holds_values(operand):
    return isinstance(operand, tuple) and isinstance(operand[0], Value)


def _fits(lists):
    """Whether results look like the first list: all of its floating-point type."""
    return len({value.dtype for one in lists for value in one}) == 1 and lists[0][0].dtype.is_floating_point


def _tensor_by_tensor(each, overload, operands, options):
    name = ops.of_number(each) if overload in ("Scalar", "ScalarList") and each not in ops.TERNARY else each
    run = getattr(F, name)
    if each in ops.TERNARY and overload == "ScalarList":
        return [run(*row[:-1], value=row[-1]) for row in _rows(operands)]
    return [run(*row, **options) for row in _rows(operands)]


def _make(each, overload, *operands, **options):
    """The form that gives new tensors."""
    operands, options = _split(each, overload, operands, options)
    expression, lists, numbers = _parts(each, overload, operands, options)
    if overload != "Tensor" and not _records(operands) and _fits(lists):
        made = tuple([F.empty_like(value) for value in lists[0]])
        if _apply(expression, made, lists, numbers):
            return made
    return tuple(_tensor_by_tensor(each, overload, operands, options))


def _overwrite(public, each, overload, *operands, **options):
    """The form that writes into the first list."""
    if _records(operands):
        raise AutogradError(f"{public}: gradients do not flow through in-place forms; call it under no_grad")
    operands, options = _split(each, overload, operands, options)
    expression, lists, numbers = _parts(each, overload, operands, options)
    if overload == "Tensor" or not _apply(expression, lists[0], lists, numbers):
        results = _tensor_by_tensor(each, overload, operands, options)
        for target, result in zip(operands[0], results, strict=True):
            F.copy_(target, result)


def _split(each, overload, operands, options):
    """``value``, which may come by position, goes with the options."""
    if each in ops.TERNARY and overload == "Scalar" and len(operands) == 4:
        return operands[:3], {"value": operands[3]}
    return operands, options


def _file():
    for public, contracts in PUBLIC.items():
        each = public.removeprefix("_foreach_").rstrip("_")
        if not public.startswith("_foreach_") or each not in (*ops.UNARY, *ops.BINARY, *ops.TERNARY, "lerp"):
            continue
        for contract in contracts:
            overload = contract.name.partition(".")[2]
            is_inplace = public.endswith("_")
            run = partial(_overwrite, public) if is_inplace else _make
            composite(contract)(partial(run, each, overload))


_file()
