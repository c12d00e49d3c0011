"""Plain arguments, as JSON has them, turned into what the parameters of an operation want; see ``verbs``.

Public names are resolved over their overloads as calls in Python are.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from server.engine.dispatcher import is_value
from server.engine.operators import OPERATORS, Operator, overloads
from server.engine.value import Value
from server.session.arguments import SIZES, check_length
from telegrad_protocol.dtypes import ALIASES, BY_NAME
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DTypeError
from telegrad_protocol.ops import PUBLIC, TABLE, Op
from telegrad_protocol.ops.params import Param

if TYPE_CHECKING:
    from server.session.session import Session

Bound = tuple[Operator, tuple[Any, ...]]
_MODULES = {op.module for op in TABLE.values()} - {""}
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def bind(session: Session, name: str, args: list[Any], kwargs: dict[str, Any]) -> Bound:
    """The operator that users call ``name`` with these arguments, and the arguments as it takes them."""
    candidates = _candidates(name, kwargs)
    for operator in candidates[:-1]:
        try:
            return operator, _arguments(session, operator.op, args, kwargs)
        except ArgumentTypeError:
            continue
    return candidates[-1], _arguments(session, candidates[-1].op, args, kwargs)


def _candidates(name: str, kwargs: dict[str, Any]) -> list[Operator]:
    found = _named(name)
    wants_out = "out" in kwargs or "out0" in kwargs
    fitting = [operator for operator in found if (operator.op.form == "out") == wants_out]
    if not fitting:
        raise ArgumentTypeError(f"{name}: takes no argument 'out'" if wants_out else f"{name}: needs an argument 'out'")
    return fitting


def _named(name: str) -> list[Operator]:
    """By public name, by name within its module, or by the unique name of one overload."""
    if name in PUBLIC:
        return overloads(name)
    if name in OPERATORS:
        return [OPERATORS[name]]
    module, _, public = name.rpartition(".")
    if module in _MODULES and public in PUBLIC:
        return overloads(public)
    similar = difflib.get_close_matches(name, PUBLIC, 3)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
    raise ArgumentError(f"there is no operation {name!r}{hint}")


def _arguments(session: Session, op: Op, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    bound = op.bind(tuple(args), kwargs)
    converted = tuple([_convert(session, param, plain) for param, plain in zip(op.params, bound, strict=True)])
    return _placed(session, op, op.normalize(converted, is_value))


def _placed(session: Session, op: Op, bound: tuple[Any, ...]) -> tuple[Any, ...]:
    """New tensors are made on the session's device where nothing else says on which."""
    place = next((i for i, param in enumerate(op.params) if param.kind.name == "device?"), None)
    if place is None or bound[place] is not None or any(map(_holds_value, bound)):
        return bound
    return (*bound[:place], session.default_device, *bound[place + 1 :])


def _holds_value(argument: Any) -> bool:
    return any(map(is_value, argument)) if isinstance(argument, tuple) else is_value(argument)


def _convert(session: Session, param: Param, plain: Any) -> Any:
    if param.kind.holds_tensors:
        return _tensors(session, plain)
    if param.kind.name in SIZES:
        return check_length(plain)
    convert = _BY_KIND.get(param.kind.name.removesuffix("?"))
    return plain if convert is None else convert(session, plain)


def _tensors(session: Session, plain: Any) -> Any:
    match plain:
        case list():
            return [_tensors(session, item) for item in plain]
        case {"tensor": int(id)} if len(plain) == 1:
            return session.value(id)
    return _number(session, plain)


def _number(session: Session, plain: Any) -> Any:
    match plain:
        case str() if plain in _SPECIAL:
            return _SPECIAL[plain]
        case {"complex": [real, imaginary]} if len(plain) == 1:
            return complex(_number(session, real), _number(session, imaginary))
    return plain


def _numbers(session: Session, plain: Any) -> Any:
    return [_number(session, item) for item in plain] if isinstance(plain, list) else plain


def _dtype(session: Session, plain: Any) -> Any:
    if not isinstance(plain, str):
        return plain
    name = plain.removeprefix("torch.").removeprefix("telegrad.")
    found = BY_NAME.get(name) or ALIASES.get(name)
    if found is None:
        raise DTypeError(f"unknown dtype {plain!r}: expected one of {', '.join(BY_NAME)}")
    return found


def _device(session: Session, plain: Any) -> Any:
    return session.host.backend(plain).device if isinstance(plain, str) else plain


_BY_KIND: dict[str, Callable[[Session, Any], Any]] = {
    "scalar": _number, "float": _number, "scalars": _numbers, "dtype": _dtype, "device": _device,
}  # fmt: skip


def tensors_in(session: Session, plain: Any) -> dict[int, Value]:
    """The tensors that plain arguments mention, by id; those that are not there are left out."""
    match plain:
        case {"tensor": int(id)}:
            value = session.values.get(id)
            return {id: value} if isinstance(value, Value) else {}
        case list():
            parts = [tensors_in(session, item) for item in plain]
        case dict():
            parts = [tensors_in(session, item) for item in plain.values()]
        case _:
            return {}
    return {id: value for part in parts for id, value in part.items()}
