"""Effects of operators beyond their results: what ``register_effect`` has told of them.

An operator with an ordered effect, such as one that prints, must run as often as it is called and in this order.
Operators of programs run in Python at every call, compiled functions included, so that this holds for all of them; what
is registered is kept for programs and packages that ask.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from telegrad_protocol.errors import ArgumentTypeError, OperatorError

from .overloads import OpOverload
from .registry import overload_of


class EffectType(Enum):
    """What an operator does beside its results: what is ``ORDERED`` happens at each call, in the order of calls."""

    ORDERED = "Ordered"


_EffectType = EffectType
_EFFECTS: Final[dict[str, EffectType]] = {}
"""By full names of operators, without ``.default``."""


def register(qualname: str, effect: EffectType | None) -> None:
    """Note the effect of an operator, or take it back with None. Raises OperatorError if none has this name."""
    if effect is not None and not isinstance(effect, EffectType):
        raise ArgumentTypeError(f"register_effect: expected an EffectType or None, not {effect!r}")
    if overload_of(qualname) is None:
        raise OperatorError(f"register_effect: the operator {qualname} does not exist: define it first")
    if effect is None:
        _EFFECTS.pop(_plain(qualname), None)
    else:
        _EFFECTS[_plain(qualname)] = effect


def _plain(qualname: str) -> str:
    return qualname.removesuffix(".default")


def qualname_of(op: Any) -> str:
    """Return the full name of an operator, of its definition, or the name that was given."""
    if isinstance(op, str):
        return op
    overload = getattr(op, "_opoverload", op)
    if not isinstance(overload, OpOverload):
        raise ArgumentTypeError(f"register_effect: expected an operator or its name, not {type(op).__name__}")
    return overload.name()


def _register_effectful_op(op: Any, effect: EffectType | None, *, lib: Any = None) -> None:
    register(qualname_of(op), effect)


def _get_effect(op: Any) -> EffectType | None:
    return _EFFECTS.get(_plain(qualname_of(op)))


def has_effects(op: Any) -> bool:
    """Whether an operator has an effect beyond its results."""
    return _get_effect(op) is not None
