"""Functions and methods for users, made from the contracts: names, signatures, docstrings, overloads, ``out=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from telegrad._session.session import Session
from telegrad._tensor import arrays as _arrays
from telegrad._tensor import indexing as _indexing
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, DeviceError, NotSupportedError
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import PUBLIC, Op
from telegrad_protocol.ops.contract import describe

from . import signatures as _signatures
from .call import call
from .call_forms import Form

_CACHE: dict[str, Callable[..., Any]] = {}
_METHODS: dict[str, Callable[..., Any]] = {}
_REMEMBERED = 256
"""So many forms of calls are remembered by each function."""


def function(public: str) -> Callable[..., Any]:
    """The function that users call by this name."""
    found = _CACHE.get(public)
    if found is None:
        found = _CACHE[public] = _make(public, PUBLIC[public])
    return found


def method(public: str) -> Callable[..., Any]:
    """The same function as a method of ``Tensor``."""
    run = _METHODS.get(public)
    if run is None:
        run = _METHODS[public] = _signatures.as_method(function(public), public)
    return run


def _make(public: str, ops: list[Op]) -> Callable[..., Any]:
    plain = [op for op in ops if op.form != "out"]
    outs = [op for op in ops if op.form == "out"]
    miss = _single(plain[0]) if len(plain) == 1 else _overloaded(public, plain)
    run = _remembering(_with_out(miss, outs, public) if outs else miss, len(plain) > 1)
    if any(map(_signatures.makes_tensors, plain)):
        run = _creating(run, public)
    _signatures.describe(run, public, ops)
    return run


_CREATION_OPTIONS = frozenset(("requires_grad", "pin_memory", "layout", "memory_format", "generator"))


def _creating(run: Callable[..., Any], public: str) -> Callable[..., Any]:
    """Add what PyTorch's creation functions take beside what an operation is about."""

    def create(*args: Any, **kwargs: Any) -> Any:
        if kwargs.keys().isdisjoint(_CREATION_OPTIONS):
            return run(*args, **kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        kwargs.pop("pin_memory", None)  # host memory of the server is its own business
        wanted = kwargs.pop("memory_format", None)
        for option in ("layout", "generator"):
            if kwargs.pop(option, None) is not None:
                raise NotSupportedError(f"{public}: {option} is not supported; leave it out")
        made = run(*args, **kwargs)
        if wanted is not None:
            from .memory_formats import laid_out

            made = laid_out(public, made, wanted)
        return made.requires_grad_() if requires_grad else made

    return create


Miss = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, Form | None]]
"""Runs a call whose form was not met before: the result, and the form to remember."""


def _remembering(miss: Miss, is_overloaded: bool) -> Callable[..., Any]:
    forms: dict[tuple[Any, ...], Form] = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values()) if kwargs else args
        key = (*map(type, values), *kwargs)
        form = forms.get(key)
        if form is not None:
            try:
                return call(form, values)
            except ArgumentTypeError:
                if not is_overloaded:
                    raise
        result, form = miss(args, kwargs)
        if form is not None and form.is_certain:
            if len(forms) >= _REMEMBERED:
                forms.clear()
            forms[key] = form
        return result

    return run


def _single(op: Op) -> Miss:
    def miss(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Form | None]:
        form = Form.of(op, args, kwargs)
        return call(form, (*args, *kwargs.values())), form

    return miss


def _overloaded(public: str, ops: list[Op]) -> Miss:
    def miss(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Form | None]:
        for op in ops:
            try:
                form = Form.of(op, args, kwargs)
                return call(form, (*args, *kwargs.values())), form
            except ArgumentTypeError:
                continue
        raise _no_overload(public, ops, args, kwargs)

    return miss


def _no_overload(public: str, ops: list[Op], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentTypeError:
    given = ", ".join([describe(a) for a in args] + [f"{k}={describe(v)}" for k, v in kwargs.items()])
    known = "; ".join(op.signature for op in ops)
    return ArgumentTypeError(f"{public}: no form takes ({given}); there are: {known}")


def _with_out(miss: Miss, ops: list[Op], public: str) -> Miss:
    """Add ``out=``: results go into existing tensors; an empty one takes the result's shape, as in PyTorch."""

    def into(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Form | None]:
        if "out" not in kwargs:
            return miss(args, kwargs)
        out = kwargs.pop("out")
        if out is None:
            return miss(args, kwargs)[0], None
        targets = (out,) if isinstance(out, Tensor) else _targets(public, out)
        if any(t._meta.numel == 0 for t in targets):
            return _replace(miss(args, kwargs)[0], targets, out), None
        for op in ops:
            if len(op.mutates) != len(targets):
                continue
            names = {**kwargs, **{op.params[p].name: t for p, t in zip(op.mutates, targets, strict=True)}}
            try:
                return call(Form.of(op, args, names), (*args, *names.values())), None
            except ArgumentTypeError:
                continue
        raise _no_overload(public, [op.base for op in ops], args, {**kwargs, "out": out})

    return into


def _targets(public: str, out: Any) -> tuple[Tensor, ...]:
    if isinstance(out, (tuple, list)) and all(isinstance(o, Tensor) for o in out):
        return tuple(out)
    raise ArgumentTypeError(f"{public}: out must be a tensor or a tuple of tensors, not {describe(out)}")


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


def operand(self: Tensor, other: Any) -> Any:
    """What stands beside ``self`` in an operator, as an operation takes it; a NumPy array becomes a tensor."""
    if isinstance(other, np.generic):
        return other.item()
    if isinstance(other, np.ndarray):
        return upload_array(other, self._meta.device, self._session)
    return NotImplemented


def upload_array(array: np.ndarray[Any, Any], device: Device, session: Session) -> Tensor:
    """A tensor with the elements of an array, in its own type."""
    dtype = _arrays.dtype_of(array)
    meta = Meta.of(array.shape, dtype, device)
    return Tensor(session, session.upload(meta, _arrays.bytes_of(array, dtype), session.sites.current()), meta)


def _operator(name: str) -> Callable[[Tensor, Any], Any]:
    run = function(name)

    def apply(self: Tensor, other: Any) -> Any:
        if other.__class__ is Tensor or isinstance(other, _NUMBERS):
            return run(self, other)
        other = operand(self, other)
        return other if other is NotImplemented else run(self, other)

    return apply


def _reflected(name: str) -> Callable[[Tensor, Any], Any]:
    run = function(name)

    def apply(self: Tensor, other: Any) -> Any:
        if not isinstance(other, _NUMBERS):
            other = operand(self, other)
        return other if other is NotImplemented else run(other, self)

    return apply


def _index(self: Tensor, index: Any) -> Any:
    return _indexing.getitem(self, index, _run, lambda array: upload_array(array, self._meta.device, self._session))


def _assign(self: Tensor, index: Any, value: Any) -> None:
    if isinstance(value, Tensor) and value._session is not self._session:
        raise DeviceError("the value belongs to another session than the tensor; bring it over with numpy()")
    _indexing.setitem(self, index, value, _run, lambda array: upload_array(array, self._meta.device, self._session))


def _run(name: str, *args: Any) -> Any:
    return function(name)(*args)


def attach_methods() -> None:
    """Give ``Tensor`` its methods and Python's operators."""
    for public, ops in PUBLIC.items():
        if any(op.method for op in ops) and public not in Tensor.__dict__:
            setattr(Tensor, public, method(public))
    for dunder, public in {**_BINARY, **_COMPARISONS}.items():
        setattr(Tensor, f"__{dunder}__", _operator(public))
    for dunder, public in _BINARY.items():
        setattr(Tensor, f"__r{dunder}__", _reflected(public))
        if f"{public}_" in PUBLIC:
            setattr(Tensor, f"__i{dunder}__", _operator(f"{public}_"))
    for dunder, public in _UNARY.items():
        setattr(Tensor, f"__{dunder}__", method(public))
    for name, access in (("__getitem__", _index), ("__setitem__", _assign)):
        setattr(Tensor, name, access)


attach_methods()
