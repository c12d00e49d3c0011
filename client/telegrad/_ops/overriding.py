"""``__torch_function__``: operations that a subclass of ``Tensor``, another class, or a mode answers itself.

Operations on plain tensors do not come here. A subclass gets results of its own class, unless it defines the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any

from telegrad._ops.functions import function, method
from telegrad._ops.operand_classes import DISPATCHING, HANDLERS, OVERRIDING, MethodName, _Overrides, overrides
from telegrad._ops.own_functions import ask_for
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError

CLASSES, MODES = -1, -2
"""Who asks telegrad's functions in Python to ask: a program's classes, and its modes, from the first one on."""
SLOTS = ("_aliases", "_base", "_grad", "_id", "_meta", "_node", "_requires_grad", "_seen", "_session")


class UnansweredError(ArgumentTypeError):
    """All whose ``__torch_function__`` was asked returned NotImplemented; operators then ask the other operand."""


def overriding_of(values: Iterable[Any]) -> list[Any]:
    """Return those arguments, in lists too, whose classes override operations: subclasses first, one of each class."""
    chosen: list[Any] = []
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            kind = type(item)
            if overrides_operations(kind) and all(type(other) is not kind for other in chosen):
                place = next((i for i, other in enumerate(chosen) if issubclass(kind, type(other))), len(chosen))
                chosen.insert(place, item)
    return chosen


def overrides_operations(kind: type) -> bool:
    """Whether a class has a ``__torch_function__`` other than that of ``Tensor`` itself."""
    method = getattr(kind, "__torch_function__", None)
    is_disabled = getattr(method, "__func__", method) is disabled_torch_function
    return kind is not Tensor and method is not None and not is_disabled and not issubclass(kind, type)


def _of_classes(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    func = method(public) if isinstance(public, MethodName) else _public_function(public)
    return dispatch(func, overriding_of((*args, *kwargs.values())), args, kwargs)


def _public_function(public: str) -> Callable[..., Any]:
    """Return the function that programs know by a name: one in Python, such as ``clone``, may call the operation's."""
    made = function(public)
    known = getattr(import_module(__package__.partition(".")[0]), public, made)
    return known if isinstance(known, FunctionType) else made


def dispatch(func: Callable[..., Any], relevant: Iterable[Any], args: Any, kwargs: Any) -> Any:
    """Return what the first of the mode and the arguments answers to ``func``.

    Raises UnansweredError where all of them return NotImplemented.
    """
    chosen = list(relevant)
    types = tuple([type(item) for item in chosen])
    if overrides.modes:
        with _popped() as mode:
            result = mode.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    for item in chosen:
        result = item.__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    if not chosen and not overrides.modes:
        return func(*args, **kwargs)
    raise UnansweredError(_refusal(func, types))


def _refusal(func: Callable[..., Any], types: tuple[type, ...]) -> str:
    """Return PyTorch's words where neither the mode nor a class answers a function."""
    name = import_module(__package__.partition(".")[0]).overrides.resolve_name(func)
    if name is None:  # a function of the program, which asks by ``handle_torch_function``
        shown = f"{getattr(func, '__module__', '')}.{getattr(func, '__name__', func)}"
        text = f"no implementation found for {shown!r} on types that implement __torch_function__: {list(types)}"
        return text + (f" nor in mode {overrides.modes[-1]}" if overrides.modes else "")
    asked = [f"mode object {mode}" for mode in overrides.modes[-1:]] + [f"tensor subclass {kind}" for kind in types]
    listed = "".join(f"  - {item}\n" for item in asked)
    return (
        f"Multiple dispatch failed for {name!r}; all __torch_function__ handlers returned NotImplemented:\n\n{listed}"
    )


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is entered, or one of the arguments has a class that overrides operations."""
    if overrides.skips_next:
        overrides.skips_next = False
        return False
    is_class = not overrides.are_disabled and any(overrides_operations(type(item)) for item in relevant_args)
    return bool(overrides.modes) or is_class


def has_torch_function_unary(tensor: Any) -> bool:
    """``has_torch_function`` for one argument."""
    return has_torch_function((tensor,))


def has_torch_function_variadic(*args: Any) -> bool:
    """``has_torch_function`` for several arguments."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Return what the mode, or the first of the arguments that does, answers to ``public_api(*args, **kwargs)``.

    Raises UnansweredError where all of them return NotImplemented.
    """
    relevant = overriding_of(relevant_args)
    if not relevant and not overrides.modes:
        raise UnansweredError(_refusal(public_api, ()))
    return dispatch(public_api, relevant, args, kwargs)


@contextmanager
def _popped() -> Iterator[Any]:
    """Leave the innermost mode within the block."""
    *outer, mode = overrides.modes
    before, overrides.modes = overrides.modes, tuple(outer)
    try:
        yield mode
    finally:
        overrides.modes = before


@contextmanager
def disabled() -> Iterator[None]:
    """Let subclasses answer no operations of this thread within the block."""
    before, overrides.are_disabled = overrides.are_disabled, True
    try:
        yield
    finally:
        overrides.are_disabled = before


@contextmanager
def all_disabled() -> Iterator[None]:
    """Let neither subclasses nor modes answer operations of this thread within the block."""
    before, overrides.modes = overrides.modes, ()
    try:
        with disabled():
            yield
    finally:
        overrides.modes = before


def _torch_function(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Run ``func`` on the tensors as they are, and return tensors of this class."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with disabled():
        result = func(*args, **(kwargs or {}))
        return converted(result, cls, [item for item in args if isinstance(item, Tensor)])


def disabled_torch_function(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Run ``func`` as on plain tensors; what a class has that answers no operations itself."""
    with disabled():
        return func(*args, **(kwargs or {}))


def converted(result: Any, cls: type, inputs: Any = ()) -> Any:
    """Return a result with the tensors in it as tensors of this class; those of ``inputs`` are not given away."""
    if isinstance(result, Tensor):
        if isinstance(result, cls) or cls is Tensor:
            return result
        is_input = any(result is item for item in inputs)
        return _moved(function("alias")(result) if is_input else result, cls)
    if not isinstance(result, (tuple, list)):
        return result
    parts = [converted(part, cls, inputs) for part in result]
    return result._make(parts) if hasattr(result, "_make") else type(result)(parts)


def _moved(tensor: Tensor, cls: type) -> Any:
    """Return a tensor of this class in place of ``tensor``, which must not be used any more."""
    made: Any = object.__new__(cls)
    for name in SLOTS:
        setattr(made, name, getattr(tensor, name))
    tensor._id = 0
    return made


def as_subclass(self: Tensor, cls: type) -> Any:
    """Return the same elements as a tensor of a subclass; gradients flow through."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise ArgumentTypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your "
            f"class inherits from Tensor: {cls!r}"
        )
    with disabled():
        return _moved(function("alias")(self), cls)


def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
    """Return the elements of ``data`` as a leaf of a subclass."""
    with disabled():
        return _moved(data.detach(), cls).requires_grad_(require_grad)


def _init_after_new(self: Tensor, *args: Any, **kwargs: Any) -> None:
    """Do nothing where ``__new__`` of a subclass has made the tensor, whatever arguments that takes."""
    if not hasattr(self, "_id"):
        Tensor.__init__(self, *args, **kwargs)


def _enter(cls: type, /, **options: Any) -> None:
    """Note a subclass of ``Tensor``; its operations are its own unless it says otherwise."""
    if "__new__" in cls.__dict__ and getattr(cls, "__init__", None) is Tensor.__init__:
        setattr(cls, "__init__", _init_after_new)  # noqa: B010 - a method of a class that is not known
    if answers_below_autograd(cls) and has_inherited_function(cls):  # what it answers with stays what it is
        setattr(cls, "__torch_function__", classmethod(disabled_torch_function))  # noqa: B010 - as above
    if overrides_operations(cls):
        HANDLERS[cls] = _of_classes
        OVERRIDING.add(cls)
        if cls.__module__.partition(".")[0] != __package__.partition(".")[0]:
            ask_for(CLASSES)
    if answers_below_autograd(cls):
        enter_dispatching(cls)


def has_inherited_function(cls: type) -> bool:
    """Whether a class answers as ``Tensor`` itself does, with results of its own class."""
    return _function_of(cls) is _torch_function


def _function_of(cls: type) -> Any:
    return getattr(cls.__torch_function__, "__func__", cls.__torch_function__)  # type: ignore[attr-defined]


def answers_below_autograd(cls: type) -> bool:
    """Whether a class has a ``__torch_dispatch__`` other than that of ``Tensor`` itself."""
    method = getattr(cls, "__torch_dispatch__", None)
    return method is not None and getattr(method, "__func__", method) is not disabled_torch_dispatch


def enter_dispatching(cls: type) -> None:
    """Note a class that answers operations below autograd."""
    import_module(f"{__package__.partition('.')[0]}._dispatch.handler")  # it enters itself as what asks such classes
    DISPATCHING.add(cls)


def disabled_torch_dispatch(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Run ``func`` as on plain tensors; what a class has that answers no operations below autograd."""
    before, overrides.ignores_dispatch = overrides.ignores_dispatch, True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        overrides.ignores_dispatch = before


def _of_mode(public: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _of_classes(public, args, kwargs)


def _make_wrapper_subclass(cls: type, size: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a tensor of a subclass with a shape, a type and a device, which keeps its elements in its attributes."""
    make = import_module(f"{__package__.partition('.')[0]}._dispatch.wrappers").make_wrapper
    return make(cls, size, *args, **kwargs)


_Overrides.mode_handler = staticmethod(_of_mode)
_Overrides.class_handler = staticmethod(_of_classes)
_Overrides.class_entered = staticmethod(partial(ask_for, CLASSES))
for _method in (
    _torch_function, disabled_torch_function, disabled_torch_dispatch, _enter, _make_subclass, _make_wrapper_subclass,
):  # fmt: skip
    _method.__module__ = "telegrad"  # where users find ``Tensor``
METHODS: dict[str, Any] = {
    "__torch_function__": classmethod(_torch_function), "__torch_dispatch__": classmethod(disabled_torch_dispatch),
    "__init_subclass__": classmethod(_enter),
    "as_subclass": as_subclass, "_make_subclass": staticmethod(_make_subclass),
    "_make_wrapper_subclass": staticmethod(_make_wrapper_subclass),
}  # fmt: skip
