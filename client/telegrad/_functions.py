"""Functions and methods for users, made from the contracts: names, signatures, docstrings, overloads, ``out=``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from telegrad_protocol.errors import ArgumentTypeError
from telegrad_protocol.ops import PUBLIC, Op
from telegrad_protocol.ops.contract import describe

from ._call import call
from ._tensor import Tensor

_CACHE: dict[str, Callable[..., Any]] = {}


def function(public: str) -> Callable[..., Any]:
    """The function that users call by this name."""
    found = _CACHE.get(public)
    if found is None:
        found = _CACHE[public] = _make(public, PUBLIC[public])
    return found


def _make(public: str, ops: list[Op]) -> Callable[..., Any]:
    plain = [op for op in ops if op.form != "out"]
    outs = [op for op in ops if op.form == "out"]
    run = _single(plain[0]) if len(plain) == 1 else _overloaded(public, plain)
    if outs:
        run = _with_out(run, outs, public)
    run.__name__ = run.__qualname__ = public
    run.__doc__ = "\n\n".join(f"{op.signature}\n\n{op.doc}" for op in plain)
    run.__signature__ = inspect.signature(plain[0].base.rule) if len(plain) == 1 else None  # type: ignore[attr-defined]
    if run.__signature__ is None:  # type: ignore[attr-defined]
        del run.__signature__  # type: ignore[attr-defined]
    return run


def _single(op: Op) -> Callable[..., Any]:
    bind = op.bind

    def run(*args: Any, **kwargs: Any) -> Any:
        return call(op, bind(args, kwargs))

    return run


def _overloaded(public: str, ops: list[Op]) -> Callable[..., Any]:
    chosen: dict[tuple[Any, ...], Op] = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        key = (*map(type, args), *kwargs)
        op = chosen.get(key)
        if op is not None:
            try:
                return call(op, op.bind(args, kwargs))
            except ArgumentTypeError:
                pass
        for op in ops:
            try:
                result = call(op, op.bind(args, kwargs))
            except ArgumentTypeError:
                continue
            if len(chosen) < 256:
                chosen[key] = op
            return result
        raise _no_overload(public, ops, args, kwargs)

    return run


def _no_overload(public: str, ops: list[Op], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentTypeError:
    given = ", ".join([describe(a) for a in args] + [f"{k}={describe(v)}" for k, v in kwargs.items()])
    known = "; ".join(op.signature for op in ops)
    return ArgumentTypeError(f"{public}: no form takes ({given}); there are: {known}")


def _with_out(run: Callable[..., Any], ops: list[Op], public: str) -> Callable[..., Any]:
    """Add ``out=``: results go into existing tensors; an empty one takes the result's shape, as in PyTorch."""

    def into(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if out is None:
            return run(*args, **kwargs)
        targets = (out,) if isinstance(out, Tensor) else tuple(out)
        if any(t._meta.numel == 0 for t in targets):
            return _replace(run(*args, **kwargs), targets, out)
        for op in ops:
            if len(op.mutates) != len(targets):
                continue
            names = {op.params[p].name: t for p, t in zip(op.mutates, targets, strict=True)}
            try:
                return call(op, op.bind(args, {**kwargs, **names}))
            except ArgumentTypeError:
                continue
        raise _no_overload(public, [op.base for op in ops], args, {**kwargs, "out": out})

    return into


def _replace(result: Any, targets: tuple[Tensor, ...], out: Any) -> Any:
    for target, made in zip(targets, (result,) if isinstance(result, Tensor) else result, strict=True):
        made = made if made.dtype is target.dtype else made.to(target.dtype)
        target._become(made)
    return out


def populate(namespace: dict[str, Any], module: str) -> None:
    """Put the functions that users find in ``module`` (``""`` for the top level) into a module's globals."""
    for public, ops in PUBLIC.items():
        belongs = any(op.module == module or (module == "" and op.base.method) for op in ops)
        if belongs and not public.startswith("_") and public not in namespace:
            namespace[public] = function(public)


_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_UNARY = {"neg": "neg", "abs": "abs", "invert": "bitwise_not", "pos": "positive"}
_NUMBERS = (Tensor, bool, int, float, complex)


def _is_operand(thing: Any) -> bool:
    import numpy as np

    return isinstance(thing, _NUMBERS) or isinstance(thing, np.generic)


def _operator(name: str) -> Callable[[Tensor, Any], Any]:
    run = function(name)

    def apply(self: Tensor, other: Any) -> Any:
        if other.__class__ is Tensor or isinstance(other, _NUMBERS) or _is_operand(other):
            return run(self, other)
        return NotImplemented

    return apply


def _reflected(name: str) -> Callable[[Tensor, Any], Any]:
    run = function(name)

    def apply(self: Tensor, other: Any) -> Any:
        return run(other, self) if _is_operand(other) else NotImplemented

    return apply


def attach_methods() -> None:
    """Give ``Tensor`` its methods and Python's operators."""
    for public, ops in PUBLIC.items():
        if any(op.method for op in ops) and public not in Tensor.__dict__:
            setattr(Tensor, public, function(public))
    for dunder, public in {**_BINARY, **_COMPARISONS}.items():
        if public in PUBLIC:
            setattr(Tensor, f"__{dunder}__", _operator(public))
    for dunder, public in _BINARY.items():
        if public in PUBLIC:
            setattr(Tensor, f"__r{dunder}__", _reflected(public))
        if f"{public}_" in PUBLIC:
            setattr(Tensor, f"__i{dunder}__", _operator(f"{public}_"))
    for dunder, public in _UNARY.items():
        if public in PUBLIC:
            setattr(Tensor, f"__{dunder}__", function(public))


attach_methods()
