"""Operations on engine values under their public names, in which formulas and composites are written.

``F.sum(x, 0)`` calls the overload that the arguments fit. Values have the same functions as methods and operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import PUBLIC

from .dispatcher import call, dispatch
from .operators import Operator, overloads
from .value import Value


def _function(public: str) -> Callable[..., Any]:
    candidates = [operator for operator in overloads(public) if operator.op.form != "out"]
    if len(candidates) == 1:
        return _single(public, candidates[0])

    def run(*args: Any, **kwargs: Any) -> Any:
        for operator in candidates[:-1]:
            try:
                return call(operator, args, kwargs)
            except ArgumentTypeError:
                continue
        return call(candidates[-1], args, kwargs)

    run.__name__ = run.__qualname__ = public
    return run


def _single(public: str, operator: Operator) -> Callable[..., Any]:
    """Return a public function with one overload: `dispatcher.call`, written out for what is usual."""
    accepted, defaults = operator.accepted, operator.defaults

    def run(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and accepted.get(tuple(map(type, args))) == ():  # the classes fit, and none is a size
            args += defaults[len(args) :]
            lookup = operator.lookups.get(tuple(map(type, args)))
            return dispatch(operator, args) if lookup is None else lookup(args)
        return call(operator, args, kwargs)

    run.__name__ = run.__qualname__ = public
    return run


_FUNCTIONS: dict[str, Callable[..., Any]] = {name: _function(name) for name in PUBLIC}


def __getattr__(name: str) -> Callable[..., Any]:
    try:
        return _FUNCTIONS[name]
    except KeyError:
        raise AttributeError(f"no operation is called {name!r}") from None


def run(operator: Operator, *args: Any) -> Any:
    """Call one exact operator, such as ``OPERATORS["max.dim"]``."""
    return call(operator, args, {})


def _reflected(name: str) -> Callable[[Value, Any], Any]:
    return lambda self, other: _FUNCTIONS[name](other, self)


_DUNDERS = {
    "__add__": "add", "__mul__": "mul", "__sub__": "sub", "__truediv__": "div", "__matmul__": "matmul",
    "__neg__": "neg", "__pow__": "pow", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt",
    "__ge__": "ge", "__and__": "logical_and", "__or__": "logical_or", "__invert__": "logical_not",
}  # fmt: skip
_REFLECTED = {"__radd__": "add", "__rmul__": "mul", "__rsub__": "sub", "__rtruediv__": "div", "__rpow__": "pow"}


def attach_methods() -> None:
    """Give ``Value`` a method per operation that has one, and Python's operators."""
    for name, candidates in PUBLIC.items():
        if any(op.method for op in candidates):
            setattr(Value, name, _FUNCTIONS[name])
    for dunder, name in _DUNDERS.items():
        if name in _FUNCTIONS:
            setattr(Value, dunder, _FUNCTIONS[name])
    for dunder, name in _REFLECTED.items():
        if name in _FUNCTIONS:
            setattr(Value, dunder, _reflected(name))
    Value.__hash__ = object.__hash__  # type: ignore[method-assign]


attach_methods()
for _name, _function_of_name in _FUNCTIONS.items():
    globals().setdefault(_name, _function_of_name)  # found at once, without asking ``__getattr__``
