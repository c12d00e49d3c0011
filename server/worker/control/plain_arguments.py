"""Plain arguments, as JSON has them, turned into what the parameters of an operation want; see ``verbs``.

Public names are resolved over their overloads as calls in Python are.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from server.engine.dispatcher import is_value
from server.engine.operators import OPERATORS, Operator, overloads
from server.engine.value import Value
from server.session.arguments import SIZES, check_length
from server.session.state import SessionState
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError
from telegrad_protocol.json_numbers import read_number
from telegrad_protocol.ops import PUBLIC, TABLE, Op
from telegrad_protocol.ops.namespaces import public_of
from telegrad_protocol.ops.params import Param

Bound = tuple[Operator, tuple[Any, ...]]
_MODULES = {op.module for op in TABLE.values()} - {""}


def bind(state: SessionState, name: str, args: list[Any], kwargs: dict[str, Any]) -> Bound:
    """The operator that users call ``name`` with these arguments, and the arguments as it takes them."""
    candidates = _candidates(name, kwargs)
    for operator in candidates[:-1]:
        try:
            return operator, _arguments(state, operator.op, args, kwargs)
        except ArgumentTypeError:
            continue
    return candidates[-1], _arguments(state, candidates[-1].op, args, kwargs)


def _candidates(name: str, kwargs: dict[str, Any]) -> list[Operator]:
    overloads_of_name = _named(name)
    wants_out = "out" in kwargs or "out0" in kwargs
    fitting = [operator for operator in overloads_of_name if (operator.op.form == "out") == wants_out]
    if not fitting:
        raise ArgumentTypeError(f"{name}: takes no argument 'out'" if wants_out else f"{name}: needs an argument 'out'")
    return fitting


def _named(name: str) -> list[Operator]:
    """By public name, by name within its module, or by the unique name of one overload."""
    if name in PUBLIC:
        return overloads(name)
    if public_of(name) in PUBLIC:
        return overloads(public_of(name))
    if name in OPERATORS:
        return [OPERATORS[name]]
    module, _, public = name.rpartition(".")
    if module in _MODULES and public in PUBLIC:
        return overloads(public)
    similar = difflib.get_close_matches(name, PUBLIC, 3)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else ""
    raise ArgumentError(f"there is no operation {name!r}{hint}")


def _arguments(state: SessionState, op: Op, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    bound = op.bind(tuple(args), kwargs)
    converted = tuple([_convert(state, param, plain) for param, plain in zip(op.params, bound, strict=True)])
    return _placed(state, op, op.normalize(converted, is_value))


def _placed(state: SessionState, op: Op, bound: tuple[Any, ...]) -> tuple[Any, ...]:
    """New tensors are made on the session's device where nothing else says on which."""
    place = next((i for i, param in enumerate(op.params) if param.kind.name == "device?"), None)
    if place is None or bound[place] is not None or any(map(_holds_value, bound)):
        return bound
    return (*bound[:place], state.default_device, *bound[place + 1 :])


def _holds_value(argument: Any) -> bool:
    return any(map(is_value, argument)) if isinstance(argument, tuple) else is_value(argument)


def _convert(state: SessionState, param: Param, plain: Any) -> Any:
    if param.kind.holds_tensors:
        return _tensors(state, plain)
    if param.kind.name in SIZES:
        return check_length(plain)
    convert = _BY_KIND.get(param.kind.name.removesuffix("?"))
    return plain if convert is None else convert(state, plain)


def _tensors(state: SessionState, plain: Any) -> Any:
    match plain:
        case list():
            return [_tensors(state, item) for item in plain]
        case {"tensor": int(id)} if len(plain) == 1:
            return state.value(id)
    return read_number(plain)


def _number(state: SessionState, plain: Any) -> Any:
    return read_number(plain)


def _numbers(state: SessionState, plain: Any) -> Any:
    return [read_number(item) for item in plain] if isinstance(plain, list) else plain


def _dtype(state: SessionState, plain: Any) -> Any:
    if not isinstance(plain, str):
        return plain
    return dtypes.named(plain)


def _device(state: SessionState, plain: Any) -> Any:
    return state.backend(plain).device if isinstance(plain, str) else plain


_BY_KIND: dict[str, Callable[[SessionState, Any], Any]] = {
    "scalar": _number, "float": _number, "scalars": _numbers, "dtype": _dtype, "device": _device,
}  # fmt: skip


def tensors_in(state: SessionState, plain: Any) -> dict[int, Value]:
    """The tensors that plain arguments mention, by id; those that are not there are left out."""
    match plain:
        case {"tensor": int(id)}:
            value = state.values.get(id)
            return {id: value} if isinstance(value, Value) else {}
        case list():
            parts = [tensors_in(state, item) for item in plain]
        case dict():
            parts = [tensors_in(state, item) for item in plain.values()]
        case _:
            return {}
    return {id: value for part in parts for id, value in part.items()}
