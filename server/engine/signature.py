"""Signatures: all that decides how a call is executed, as a tuple that can be compared.

A signature holds the default dtype, the caller's domain, the metas of tensors in place of the tensors, and attributes.
Numbers that are equal and mean different things, such as 1, 1.0 and True or 0.0 and -0.0, make different signatures.
"""

from __future__ import annotations

from functools import reduce
from operator import attrgetter, or_
from typing import Any

from telegrad_protocol import dtypes

from . import context
from .in_c import metas as metas_in_c
from .in_c import signatures as signatures_in_c
from .keys import ALL, DOMAIN_SHIFT
from .operators import Operator, Signature
from .value import Value

SIGNED = frozenset((float, complex))
"""Classes of numbers in which 0 and -0 are equal but give different results."""
_holds_values = frozenset((Value,)).issuperset
_holds_none = frozenset((Value, tuple)).isdisjoint
"""Whether there is no value, and nothing that may hold one, among things of these classes."""
_meta_of, _keys_of = attrgetter("meta"), attrgetter("keys")


def signature_of(operator: Operator, args: tuple[Any, ...]) -> tuple[int, Signature]:
    """The key set of a call under the current modes, and its signature."""
    ctx = context.current
    if operator.is_unary:
        value = args[0]
        key_set = (ctx.included | value.keys) & ~ctx.excluded
        return key_set & ALL, (dtypes._default, key_set >> DOMAIN_SHIFT, value.meta, args[1:])
    key_set = ctx.included
    items: list[Any] = [dtypes._default, key_set >> DOMAIN_SHIFT]
    for arg in args[: operator.leading_tensors]:
        if arg.__class__ is Value:
            key_set |= arg.keys
            items.append(arg.meta)
        else:
            items.append(arg)
            if arg is not None:
                items.append(number_identity(arg))
    if operator.middle_is_plain:
        key_set |= _append_middle(operator, args, items)
    first = operator.first_attribute
    if first < len(args):
        items.append(args[first:])
        for position in operator.scalar_attributes:
            arg = args[position]
            items.append(arg.__class__ if arg and arg.__class__ is not complex else number_identity(arg))
    return key_set & ~ctx.excluded & ALL, tuple(items)


def _append_middle(operator: Operator, args: tuple[Any, ...], items: list[Any]) -> int:
    """Describe the arguments between the leading tensors and the attributes; returns the keys of their tensors.

    Operations that update leaves get numbers that change from step to step, such as learning rates, and their kernels
    read those each time: of such a float only whether it is 0 is part of the signature, in lists of numbers too.
    """
    key_set = 0
    for arg, is_plain in zip(args[operator.leading_tensors :], operator.middle_is_plain):
        kind = arg.__class__
        if kind is Value:
            key_set |= arg.keys
            items.append(arg.meta)
        elif is_plain or arg is None:
            items.append(arg)
        elif kind is tuple:
            key_set |= _append_list(arg, items, operator.op.updates)
        else:
            items.append(float if kind is float and arg and operator.op.updates else arg)
            items.append(kind if arg and kind is not complex else number_identity(arg))
    return key_set


def _append_list(tensors: tuple[Any, ...], items: list[Any], updates: bool) -> int:
    """Describe a list of tensors, of which some may be absent or numbers; returns their keys.

    Of floats that an operation that ``updates`` leaves reads each time it is noted that they are floats.
    """
    if _holds_values(map(type, tensors)):
        items.append(tuple(map(_meta_of, tensors)))
        return reduce(or_, map(_keys_of, tensors), 0)
    key_set = 0
    described: list[Any] = []
    for item in tensors:
        if item.__class__ is Value:
            key_set |= item.keys
            described.append(item.meta)
        elif updates and item and item.__class__ is float:
            described.append(float)
        else:
            described.append(item)
            described.append(number_identity(item))
    items.append(tuple(described))
    return key_set


def number_identity(item: Any) -> Any:
    """What tells numbers apart that are equal: their type, and for 0 and complex numbers also the signs of zeros."""
    kind = item.__class__
    return repr(item) if kind in SIGNED else kind


def metas_of(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a shape rule: values replaced by their metas, in lists too."""
    return tuple(
        [
            arg.meta
            if arg.__class__ is Value
            else arg
            if arg.__class__ is not tuple or _holds_none(map(type, arg))
            else metas_of(arg)
            for arg in args
        ]
    )


signature_in_python, metas_in_python = signature_of, metas_of
"""What makes signatures where nothing is in C, and of calls that are unusual where something is."""
_prepared = signatures_in_c.prepared(signature_of, metas_of)
if _prepared is not None:
    signature_of, metas_of = _prepared  # type: ignore[assignment]
metas_in_c.install()
