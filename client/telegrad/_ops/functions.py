"""Functions and methods for users, made from the contracts: names, signatures, docstrings, overloads, ``out=``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from telegrad._native.binding import call as call
from telegrad._native.binding import types_of
from telegrad._session.current import current_session
from telegrad._session.devices import as_device, default_device, require_device, session_for
from telegrad._session.session import ClientSession
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._tensor.generator import Generator
from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, ShapeError
from telegrad_protocol.memory_format import MemoryFormat, lies_in, preserve_format, strides_of
from telegrad_protocol.ops import PUBLIC, Op
from telegrad_protocol.ops.contract import describe
from telegrad_protocol.ops.namespaces import NAMESPACES, place_of
from telegrad_protocol.ops.targets import TYPED_BY_TARGETS

from . import signatures as _signatures
from .call_pattern import CallPattern, Miss
from .duals import DualTensor, duals, run_in_level
from .operand_classes import (
    DISPATCHING,
    OVERRIDING,
    MethodName,
    handler_of,
    modes_entered,
    overrides,
    patterns_of,
    unknown_handler_of,
)
from .operands.expanded_targets import SELECTING, with_expanded_targets
from .operands.trailing_places import with_trailing_places
from .operands.unbound_calls import without_owner
from .outputs import check_separate, into, into_resized, like_target, targets_of
from .randomness import checked
from .replaced import REPLACED, replacement_of
from .tensor_numbers import read_numbers
from .warned_calls import has_older_forms, in_todays_form

_CACHE: dict[str, Callable[..., Any]] = {}
_METHODS: dict[str, Callable[..., Any]] = {}
_MAX_PATTERNS = 256
"""Each function caches the patterns of at most so many ways to call it."""


def function(public: str) -> Callable[..., Any]:
    """Return the function that users call by this name."""
    run = _CACHE.get(public)
    if run is None:
        run = _CACHE[public] = _make(public, PUBLIC[public])
    return run


def method(public: str) -> Callable[..., Any]:
    """Return the same function as a method of ``Tensor``; classes and modes that override it are given the method."""
    run = _METHODS.get(public)
    if run is None:
        of_method = _with_options(MethodName(public), PUBLIC[public], _miss_of(public))
        run = _METHODS[public] = _signatures.as_method(of_method, function(public), public)
    return run


class UnmadeMethod:
    """A method of ``Tensor`` until a program first asks for it; then the method takes this one's place in the class."""

    __slots__ = ("_name", "_public")

    def __init__(self, name: str, public: str) -> None:
        self._name = name
        self._public = public

    def __get__(self, tensor: Tensor | None, kind: type) -> Any:
        made = method(self._public)
        if Tensor.__dict__.get(self._name) is self:
            setattr(Tensor, self._name, made)
        return made if tensor is None else made.__get__(tensor, kind)


def _make(public: str, ops: list[Op]) -> Callable[..., Any]:
    run = _with_options(public, ops, _miss_of(public))
    _signatures.describe(run, public, ops)
    return run


@cache
def _miss_of(public: str) -> Miss:
    """Return what runs calls of a function and of its method whose patterns are not cached."""
    ops = PUBLIC[public]
    plain = [op for op in ops if op.form != "out"]
    outs = [op for op in ops if op.form == "out"]
    miss = _single(plain[0]) if len(plain) == 1 else _overloaded(public, plain)
    miss = _with_numbers(_with_out(miss, outs, public) if outs else miss, plain, public in _OF_TWO_NUMBERS)
    if plain[0].is_random:
        miss = _with_generator(miss, public)
    if public in SELECTING:
        miss = with_expanded_targets(miss, public, function)
    if has_older_forms(public):
        miss = _with_older_forms(miss, plain[0])
    miss = with_trailing_places(miss, public, plain[0].positional)
    copied = next((op for op in plain if "copied" in op.out_rules), None)
    if copied is not None:
        miss = _with_copied_out(miss, copied)
    return miss


def _with_options(public: str, ops: list[Op], miss: Miss) -> Callable[..., Any]:
    """Return what is called by a public name, whose options those are that no operation has."""
    plain = [op for op in ops if op.form != "out"]
    run = _with_cache(public, miss)
    if plain[0].is_random:
        run = checked(run, plain[0])
    if any(map(_signatures.makes_tensors, plain)):
        run = _creating(run, public)
    return run


_CREATION_OPTIONS = frozenset(("requires_grad", "pin_memory", "layout", "memory_format"))


def _creating(run: Callable[..., Any], public: str) -> Callable[..., Any]:
    """Add the options of PyTorch's creation functions that no operation has, such as ``requires_grad``."""

    def create(*args: Any, **kwargs: Any) -> Any:
        place = kwargs.get("device")
        if place is not None and args and isinstance(args[0], Tensor):
            args = overrides.like_operand(place, args)
        if kwargs.keys().isdisjoint(_CREATION_OPTIONS):
            return run(*args, **kwargs)
        if overrides.modes and overrides.mode_handler is not None:  # asked with the options, which it may change
            return overrides.mode_handler(public, args, kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        kwargs.pop("pin_memory", None)  # the server pins its host memory by itself
        wanted = kwargs.pop("memory_format", None)
        layout = kwargs.pop("layout", None)
        if layout in (None, strided):
            if layout is strided and args and getattr(args[0], "layout", strided) is not strided:
                args = (args[0].to_dense(), *args[1:])
            tensor = run(*args, **kwargs)
        else:
            tensor = import_module("telegrad._sparse.building").created(public, args, kwargs, layout)
        if wanted is not None:
            tensor = in_memory_format(public, tensor, wanted)
        return tensor.requires_grad_() if requires_grad else tensor

    return create


def _with_cache(public: str, miss: Miss) -> Callable[..., Any]:
    patterns = patterns_of(public)

    def run(*args: Any, **kwargs: Any) -> Any:
        values: tuple[Any, ...] = args
        key: tuple[Any, ...]
        if kwargs:
            values = (*args, *kwargs.values())
            key = types_of(values, kwargs)
        elif (count := len(args)) == 1:
            key = (type(args[0]),)
        elif count == 2:
            key = type(args[0]), type(args[1])
        elif count == 3:
            key = type(args[0]), type(args[1]), type(args[2])
        else:
            key = types_of(args)
        if (pattern := patterns.get(key)) is not None:
            try:
                return call(pattern, values)
            except ArgumentTypeError:
                pattern = None  # another form may take these values, or one whose numbers are read from tensors
        handler = handler_of(values)
        if handler is not None:
            return handler(public, args, kwargs)
        if duals.intercepts:
            return run_in_level(miss, args, kwargs)
        replaced = replacement_of(public) if REPLACED else None
        if replaced is not None:
            return replaced(args, kwargs)
        try:
            result, pattern = miss(args, kwargs)
        except ArgumentTypeError:
            handler = unknown_handler_of(values) or without_owner(function(public), run, args)
            if handler is None:
                raise
            return handler(public, args, kwargs)
        if pattern is not None and pattern.is_cacheable and not (DualTensor in key or _is_overridden(public, key)):
            if len(patterns) >= _MAX_PATTERNS:
                patterns.clear()
            patterns[key] = pattern
        return result

    return run


def _is_overridden(public: str, key: tuple[Any, ...]) -> bool:
    """Whether the next call of this pattern may be one that a mode, a class or a kernel of the program overrides."""
    if modes_entered or public in REPLACED or not OVERRIDING.isdisjoint(key):
        return True
    return not DISPATCHING.isdisjoint(key)


def _single(op: Op) -> Miss:
    def miss(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, CallPattern | None]:
        pattern = CallPattern.of(op, args, kwargs)
        return call(pattern, (*args, *kwargs.values())), pattern

    return miss


def _overloaded(public: str, ops: list[Op]) -> Miss:
    def miss(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, CallPattern | None]:
        for op in ops:
            try:
                pattern = CallPattern.of(op, args, kwargs)
                return call(pattern, (*args, *kwargs.values())), pattern
            except ArgumentTypeError:
                continue
        raise no_overload(public, ops, args, kwargs)

    return miss


def _with_older_forms(miss: Miss, op: Op) -> Miss:
    """Add the forms of older PyTorch, whose numbers stand before the tensors."""

    def rearrange(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, CallPattern | None]:
        todays = in_todays_form(op, args)
        if todays is None:
            return miss(args, kwargs)
        return function(op.public)(*todays[0], **todays[1], **kwargs), None

    return rearrange


_OF_TWO_NUMBERS = frozenset(
    ("add", "div", "divide", "floor_divide", "mul", "multiply", "sub", "subtract", "true_divide")
)
"""Functions whose operands may both be numbers; the result is a tensor."""


def _with_numbers(miss: Miss, ops: list[Op], of_two_numbers: bool) -> Miss:
    """Let numbers be given as tensors, whose elements such a call waits for; and tensors as numbers, of two numbers."""

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, CallPattern | None]:
        try:
            return miss(args, dict(kwargs))
        except ArgumentTypeError:
            if of_two_numbers and args and isinstance(args[0], (int, float, complex)):
                return miss((function("full")((), args[0]), *args[1:]), kwargs)[0], None
            for op in ops:
                numbers = read_numbers(op, args, kwargs)
                if numbers is not None:
                    with suppress(ArgumentTypeError):
                        return miss(*numbers)[0], None
            raise

    return read


def _with_generator(miss: Miss, public: str) -> Miss:
    """Add ``generator=``: numbers are drawn from it in place of the session's generator."""

    def draw(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, CallPattern | None]:
        if "generator" not in kwargs:
            return miss(args, kwargs)
        named = dict(kwargs)
        generator = named.pop("generator")
        if generator is None or (isinstance(generator, Generator) and generator.is_default):
            return miss(args, named)[0], None
        if not isinstance(generator, Generator):
            raise ArgumentTypeError(f"{public}: generator must be a telegrad.Generator, not {describe(generator)}")
        if isinstance(_drawing_session(args, named), ShapeSession):
            return miss(args, named)[0], None
        state, device = _drawn_from(generator, args, named)
        exchange = function("_exchange_generator_")
        exchange(state, device)
        try:
            return miss(args, named)[0], None
        finally:
            exchange(state, device)

    return draw


def _drawing_session(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ClientSession:
    tensor = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    return session_for(kwargs.get("device")) if tensor is None else tensor._session


def _drawn_from(generator: Generator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, str]:
    """Return the state of a generator, and the device whose numbers a call is to draw from it."""
    tensor = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    session = current_session() if tensor is None else tensor._session
    place = kwargs.get("device")
    if place is not None:
        return generator.state_in(session), require_device(as_device(place), session).name
    return generator.state_in(session), (default_device(session) if tensor is None else tensor.device).name


def no_overload(public: str, ops: list[Op], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentTypeError:
    given = ", ".join([describe(a) for a in args] + [f"{k}={describe(v)}" for k, v in kwargs.items()])
    known = "; ".join(op.signature for op in ops)
    return ArgumentTypeError(f"{public}: no form takes ({given}); there are: {known}")


def _with_out(miss: Miss, ops: list[Op], public: str) -> Miss:
    """Add ``out=``: results go into existing tensors; one of another shape takes the result's, as in PyTorch."""

    def write(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, CallPattern | None]:
        if "out" not in kwargs:
            return miss(args, kwargs)
        out = kwargs.pop("out")
        if out is None:
            return miss(args, kwargs)[0], None
        targets = targets_of(public, out)
        base = ops[0].base
        if "separate" in base.out_rules or base.promotion:
            check_separate(public, targets, (*args, *kwargs.values()), "separate" in base.out_rules)
        is_creation = _signatures.makes_tensors(base)
        if is_creation:
            kwargs = like_target(targets[0], kwargs)
        elif public in TYPED_BY_TARGETS and kwargs.get("dtype") is None:
            kwargs["dtype"] = targets[0].dtype
        for op in ops:
            if len(op.mutates) != len(targets):
                continue
            names = {**kwargs, **{op.params[p].name: t for p, t in zip(op.mutates, targets, strict=True)}}
            try:
                return call(CallPattern.of(op, args, names), (*args, *names.values())), None
            except ArgumentTypeError:
                continue
            except ShapeError:  # raised again without targets, unless it was theirs
                return into_resized(op.base, miss(args, kwargs)[0], out, args, kwargs, not is_creation), None
        raise no_overload(public, [op.base for op in ops], args, {**kwargs, "out": out})

    return write


def _with_copied_out(miss: Miss, op: Op) -> Miss:
    """Add ``out=`` to an operation that has no such form: its results are copied into existing tensors."""

    def copy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, CallPattern | None]:
        if "out" not in kwargs:
            return miss(args, kwargs)
        out = kwargs.pop("out")
        if out is None:
            return miss(args, kwargs)[0], None
        if "separate" in op.out_rules:
            check_separate(op.public, targets_of(op.public, out), (*args, *kwargs.values()), wholly=True)
        if _signatures.makes_tensors(op) and not any(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
            kwargs = like_target(targets_of(op.public, out)[0], kwargs)
        return into(op.name, miss(args, kwargs)[0], out, not op.is_random), None

    return copy


def check_memory_format(name: str, wanted: Any) -> MemoryFormat:
    """Return ``wanted`` if it is a memory format; ``name`` is the function that the error names."""
    if not isinstance(wanted, MemoryFormat):
        raise ArgumentTypeError(f"{name}: memory_format must be one such as telegrad.channels_last, not {wanted!r}")
    return wanted


def in_memory_format(name: str, tensor: Tensor, wanted: Any) -> Tensor:
    """Return the tensor in a memory format: itself if it has that format, or if the format is ``preserve_format``."""
    format = check_memory_format(name, wanted)
    meta = tensor._meta
    if format is preserve_format or lies_in(meta.shape, meta.strides, format):
        return tensor
    return function("_in_layout")(tensor, strides_of(meta.shape, format))  # type: ignore[no-any-return]


def populate(namespace: dict[str, Any], module: str) -> None:
    """Put the functions that users find in ``module``, such as ``"fft"``, into a module's globals."""
    for name, public in names_in(module).items():
        if name not in namespace:
            namespace[name] = function(public)


def names_in(module: str) -> dict[str, str]:
    """Return the names of the functions that users find in ``module`` (``""`` for the top level), with public names."""
    names = {}
    for public, ops in PUBLIC.items():
        place, name = place_of(public)
        belongs = place == module if place or module in NAMESPACES else _belongs(ops, module)
        if belongs and not name.startswith("_"):
            names[name] = public
    return names


def _belongs(ops: list[Op], module: str) -> bool:
    return any(op.module == module or (module == "" and op.base.method) for op in ops)
