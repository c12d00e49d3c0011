"""Operations that extensions ask for by name, on values: the overload whose parameters the arguments fit is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from server.engine.autograd.inplace import set_requires_grad
from server.engine.dispatcher import call
from server.engine.operators import Operator, overloads
from server.engine.value import Value
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentTypeError, NotSupportedError
from telegrad_protocol.meta import CPU
from telegrad_protocol.ops import PUBLIC


def run(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run the operation of a name of PyTorch's dispatcher, such as ``add`` or ``aten::add``."""
    public = name.removeprefix("aten::").partition(".")[0]
    special = _SPECIAL.get(public)
    if special is not None:
        return special(*args, **kwargs)
    if public not in PUBLIC:
        raise NotSupportedError(f"{public}: there is no such operation; docs/operations.md lists all")
    refusal: ArgumentTypeError | None = None
    candidates = [operator for operator in overloads(public) if operator.op.form != "out"]
    for operator in sorted(candidates, key=lambda candidate: len(args) > candidate.op.positional):
        names = [p.name for p in operator.op.params]
        if len(args) > len(names) or not kwargs.keys().isdisjoint(names[: len(args)]):
            continue
        try:
            return _bound(operator, args, kwargs)
        except ArgumentTypeError as error:
            refusal = refusal or error
    raise refusal or ArgumentTypeError(f"{public}: takes fewer than {len(args)} arguments")


def _bound(operator: Operator, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator; in C++ all its parameters can be given by their places."""
    op = operator.op
    count = op.positional
    for place, arg in enumerate(args):  # x.sum(kDouble): C++ has overloads that begin with the type
        if arg.__class__ is DType and op.params[place].name != "dtype" and "dtype" not in kwargs:
            args, kwargs = args[:place] + args[place + 1 :], kwargs | {"dtype": arg}
            break
    named = {p.name: value for p, value in zip(op.params[count:], args[count:])}
    return call(operator, tuple([_canonical(arg) for arg in args[:count]]), named | kwargs)


def _canonical(argument: Any) -> Any:
    return tuple(argument) if argument.__class__ is list else argument


def reads_data(name: str, results: Any) -> bool:
    """Whether shapes may depend on data from here on: an operation's do, or it has copied data to the host."""
    ops = PUBLIC.get(name.removeprefix("aten::").partition(".")[0], ())
    if any([op.data_dependent for op in ops]):
        return True
    listed = results if isinstance(results, (tuple, list)) else (results,)
    return any([isinstance(value, Value) and value.device is CPU for value in listed])


def _requires_grad(value: Value, wanted: bool) -> Value:
    set_requires_grad(value, wanted)
    return value


_SPECIAL: Final[dict[str, Callable[..., Any]]] = {"requires_grad_": _requires_grad}
