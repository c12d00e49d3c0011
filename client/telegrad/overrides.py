"""Overriding operations by ``__torch_function__``, under the names of ``torch.overrides``."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from types import FunctionType, TracebackType
from typing import Any, Final

from telegrad._ops.operand_classes import PATTERNS, modes_entered, overrides
from telegrad._ops.overriding import MODES, disabled
from telegrad._ops.overriding import disabled_torch_function as disabled_torch_function
from telegrad._ops.overriding import handle_torch_function as handle_torch_function
from telegrad._ops.overriding import has_torch_function as has_torch_function
from telegrad._ops.overriding import has_torch_function_unary as has_torch_function_unary
from telegrad._ops.overriding import has_torch_function_variadic as has_torch_function_variadic
from telegrad._ops.own_functions import ask_for
from telegrad._ops.signatures import makes_tensors
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.ops import PUBLIC
from telegrad_protocol.ops.namespaces import place_of
from telegrad_protocol.shown_name import shown_name

__all__ = [
    "BaseTorchFunctionMode", "DisableTorchFunctionSubclass", "TorchFunctionMode", "enable_reentrant_dispatch",
    "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions", "get_testing_overrides",
    "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
    "is_tensor_like", "is_tensor_method_or_property", "redispatch_function", "resolve_name", "wrap_torch_function",
]  # fmt: skip
_numbers: Final = itertools.count(1)
_ATTRIBUTES: Final = {
    name: value for name, value in vars(Tensor).items() if isinstance(value, property) and name[:2] != "__"
}
"""The attributes of tensors, by name."""
DisableTorchFunctionSubclass = disabled
enable_reentrant_dispatch = disabled


def redispatch_function(func: Callable[..., Any], types: Any, args: Any, kwargs: Any = None) -> Any:
    """Compute what a function computes, and ask classes and modes of the functions that it calls, though not of itself.

    To be called in ``__torch_function__``, with its arguments. Functions that are operations call no others.
    """
    before = overrides.modes
    if resolve_name(func) is not None:
        overrides.modes = ()
        try:
            with disabled():
                return func(*args, **(kwargs or {}))
        finally:
            overrides.modes = before
    overrides.skips_next = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        overrides.skips_next = False


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that lets arguments override a function; ``dispatcher`` says which of them may."""

    def wrap(func: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(run, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return run

    return wrap


def is_tensor_like(inp: Any) -> bool:
    """Whether something is a tensor, or overrides operations as one."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Return the functions that can be overridden, by the module or class in which users find them."""
    by_place: defaultdict[Any, list[Callable[..., Any]]] = defaultdict(list)
    for public in PUBLIC:
        if public.startswith("_"):
            continue
        method = getattr(Tensor, public, None)
        if isinstance(method, FunctionType):
            by_place[Tensor].append(method)
        namespace, name = place_of(public)
        if hasattr(_module(namespace), name) and _has_operands(public):
            by_place[_module(namespace)].append(getattr(_module(namespace), name))
    for attribute in _ATTRIBUTES.values():
        by_place[attribute] += [attribute.__get__, attribute.__set__]
    functional = _module("nn.functional")
    by_place[functional] += [
        value
        for name in dir(functional)
        if name[0] != "_" and isinstance(value := getattr(functional, name), FunctionType)
    ]
    return by_place


def _has_operands(public: str) -> bool:
    """Whether an operation takes tensors, of which one may be of a class that answers, and makes none of numbers."""
    return public.endswith("_like") or not any(map(makes_tensors, PUBLIC[public]))


def _module(name: str) -> Any:
    """Return a module as the program imports it: as one of ``torch``, where telegrad is shown as that."""
    return import_module(shown_name(name).rstrip("."))


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Return functions that are never overridden: they make tensors of data, or tell of the program's state."""
    asked = {id(one) for several in get_overridable_functions().values() for one in several}
    places = [vars(place).items() for place in (_module(""), _module("cuda"), Tensor)]
    return {
        value
        for name, value in itertools.chain.from_iterable(places)
        if isinstance(value, FunctionType) and name[0] != "_" and id(value) not in asked
    }


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return for each overridable function one with the same parameters that returns -1."""
    functions = [one for several in get_overridable_functions().values() for one in several]
    return {one: _with_parameters(one) for one in functions}


def _with_parameters(described: Callable[..., Any]) -> Callable[..., Any]:
    def override(*args: Any, **kwargs: Any) -> int:
        return -1

    if attribute_of(described) is not None:
        return override
    kept = [parameter.replace(annotation=Parameter.empty) for parameter in signature(described).parameters.values()]
    override.__signature__ = Signature(kept)  # type: ignore[attr-defined]
    return override


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Return the functions whose results do not become tensors of a subclass."""
    return {getattr(Tensor, attribute).__get__ for attribute in ("grad", "_grad", "_base")}


def resolve_name(f: Callable[..., Any]) -> str | None:
    """Return the name by which users find a function that can be overridden; None for another one."""
    attribute = attribute_of(f)
    if attribute is not None:
        return f"torch.Tensor.{attribute}.{f.__name__}"
    name = getattr(f, "__qualname__", "")
    package, _, rest = (getattr(f, "__module__", None) or "").partition(".")
    if package not in ("torch", __package__) or not name:
        return None
    return ".".join(filter(None, ("torch", "" if name.startswith("Tensor.") else rest, name)))


def attribute_of(accessor: Any) -> str | None:
    """Return the name of the attribute of tensors that a function reads or writes, as ``Tensor.shape.__get__`` does."""
    if getattr(accessor, "__name__", "") not in ("__get__", "__set__", "__delete__"):
        return None
    owner = getattr(accessor, "__self__", None)
    return next((name for name, attribute in _ATTRIBUTES.items() if attribute is owner), None)


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method or an accessor of ``Tensor``."""
    return getattr(func, "__qualname__", "").startswith("Tensor.") or getattr(func, "__name__", "") == "__get__"


class TorchFunctionMode:
    """A block in which ``__torch_function__(func, types, args, kwargs)`` of this object answers a thread's operations.

    While the method runs the mode is left, so that ``func(*args, **kwargs)`` computes.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        number = next(_numbers)
        ask_for(MODES)
        modes_entered.add(number)
        self.__dict__.setdefault("_entered", []).append((number, overrides.modes))
        for patterns in PATTERNS:
            patterns.clear()
        overrides.modes = (*overrides.modes, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        number, overrides.modes = self.__dict__["_entered"].pop()
        modes_entered.discard(number)

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a new mode."""
        return cls(*args, **kwargs)


def _get_current_function_mode() -> TorchFunctionMode | None:
    """Return the innermost mode that this thread has entered; None where there is none."""
    return overrides.modes[-1] if overrides.modes else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    """Return the modes that this thread has entered, the innermost last."""
    return list(overrides.modes)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that computes everything as it is."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))
