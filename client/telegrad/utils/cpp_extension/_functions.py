"""Functions of an extension, as Python calls them.

A function's C++ decides what it returns, so the first call of a kind (of arguments of these metas, and of these other
values) waits for the answer. Where the function cannot have seen elements of tensors, later calls of this kind do not
wait: the server checks that they return the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from telegrad._native import ABSENT
from telegrad._native.binding import call_extension
from telegrad._session.catching.prompt_errors import PATIENTLY, wait_where_caught
from telegrad._session.session import ClientSession
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import Aliases, OperationNode
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentTypeError, DeviceError, ExtensionError
from telegrad_protocol.extension_messages import (
    ALWAYS_PLAN,
    DEVICE,
    DICT,
    DTYPE,
    ENUMERATOR,
    GIVEN,
    INSTANCE,
    LIST,
    NEW,
    SET,
    TUPLE,
    CallExtension,
)
from telegrad_protocol.meta import Device, Meta

from ._arguments import CLASS, encode, fits
from ._arrays import as_arrays, as_tensors, names_arrays, without_arrays
from ._classes import ExtensionInstance

_MOST_PLANS = 1 << 12
Plan: TypeAlias = tuple[int, Any, int, tuple[Any, ...] | None]
"""The number of a plan, what a call returns, how many new tensors that has, and the same for calls in C."""
_RETURNS_NOTHING: Plan = (0, None, 0, ())


class Parameter(NamedTuple):
    """A parameter; ``default`` is a list of one value, or empty."""

    name: str
    type: str
    default: list[Any]

    def __str__(self) -> str:
        shown = f"{self.name}: {self.type.replace(CLASS, '')}"
        return shown + (f" = {self.default[0]!r}" if self.default else "")


class Overload:
    """One of the C++ functions that have the same name."""

    def __init__(
        self, number: int, result: str, parameters: list[Parameter], unnamed: int = 0, by_place: int = -1
    ) -> None:
        self.number, self.result = number, result
        types = [parameter.type for parameter in parameters]
        self.takes_more = types.count("*args"), types.count("**kwargs")
        """Whether it takes arguments that no other parameter takes: those by place, those by name."""
        self.parameters = [p for p in parameters if p.type not in ("*args", "**kwargs")]
        self.names = [parameter.name for parameter in self.parameters]
        self.unnamed = unnamed
        self.by_place = by_place if by_place >= 0 else types.index("*args") if "*args" in types else len(self.names)
        self.types = types
        self.of_tensors: Overload | None = None
        """The same with tensors for NumPy's arrays, where it takes or returns some."""
        if names_arrays([result, *types]):
            listed = [parameter._replace(type=without_arrays(parameter.type)) for parameter in parameters]
            self.of_tensors = Overload(number, without_arrays(result), listed, unnamed, by_place)
        self.is_plain = not any(self.takes_more) and not unnamed and self.by_place == len(types)
        self.is_plain &= self.of_tensors is None
        """Whether all arguments may be given by place, and go as they are."""

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return all arguments in order; None where they do not fit."""
        placed, rest = args[: self.by_place], args[self.by_place :]
        takes_args, takes_kwargs = self.takes_more
        if rest and not takes_args:
            return None
        bound, left = list(placed), dict(kwargs)
        for place, parameter in enumerate(self.parameters[len(placed) :], len(placed)):
            if parameter.name in left and place >= self.unnamed:
                bound.append(left.pop(parameter.name))
            elif parameter.default:
                bound.append(parameter.default[0])
            else:
                return None
        if left and not takes_kwargs:
            return None
        if takes_args:
            bound.insert(self.types.index("*args"), rest)
        if takes_kwargs:
            bound.append(left)
        return tuple(bound) if all(map(fits, bound, self.types)) else None

    def signature(self, name: str) -> str:
        """Return how Python would write it."""
        shown = [str(parameter) for parameter in self.parameters]
        if self.takes_more[0]:
            shown.insert(self.by_place, "*args")
        elif self.by_place < len(self.names):
            shown.insert(self.by_place, "*")
        if self.unnamed:
            shown.insert(self.unnamed, "/")
        if self.takes_more[1]:
            shown.append("**kwargs")
        return f"{name}({', '.join(shown)}) -> {self.result.replace(CLASS, '')}"


class ExtensionFunction:
    """A function of an extension.

    ``waits`` decides whether a call waits for its results: None, the default, where the function may have seen
    elements of tensors; True, always; False, only the first call of a kind, whatever the function does.
    """

    def __init__(self, session: ClientSession, module: str, name: str, doc: str, classes: dict[int, type[Any]]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = module
        self.waits: bool | None = None
        self._session = session
        self._classes = classes
        self._overloads: list[Overload] = []
        self._plans: dict[Any, Plan] = {}
        self._known: tuple[Any, ...] | None = None
        """What a call in C needs, where there is one function of C++ and calls can be made in C."""
        self._doc = doc

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """The signatures, and what the extension says of the function."""
        lines = [overload.signature(self.__name__) for overload in self._overloads]
        return "\n".join(lines) + (f"\n\n{self._doc}" if self._doc else "")

    def __repr__(self) -> str:
        return f"<extension function {self.__module__}.{self.__name__}>"

    def add(self, overload: Overload) -> None:
        """Let calls that fit no earlier one be calls of this."""
        self._overloads.append(overload)
        is_single = call_extension is not None and len(self._overloads) == 1 and overload.is_plain
        self._known = (self._session, self._plans, overload, overload.number) if is_single else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._known is not None and not kwargs and not self.waits:
            result = call_extension(self._known, args)  # type: ignore[misc]
            if result is not ABSENT:
                return result
        overload = self._overloads[0]
        if kwargs or len(self._overloads) > 1 or not overload.is_plain or len(args) != len(overload.types):
            overload, args = self._select(args, kwargs)
        if overload.of_tensors is not None:
            self._check(overload, args)
            made, copy_back = as_tensors(args, overload.types)
            result = as_arrays(self._call(overload.of_tensors, made), overload.result)
            copy_back()
            return result
        return self._call(overload, args)

    def _call(self, overload: Overload, args: tuple[Any, ...]) -> Any:
        tensors: list[Tensor] = []
        session = self._session
        wire = [encode(argument, tensors, session) for argument in args]
        modes = thread.modes
        records = modes.records
        key: list[Any] = [overload, modes.of_plans, records, dtypes._default]
        parents = []
        for tensor in tensors:
            if tensor._session is not session:
                raise self._foreign(tensor)
            key.append(tensor._meta)
            tracked = tensor._is_tracked()
            key.append(tracked)
            if tracked and records:
                parents.append(tensor._node or tensor._gradient_edge())
        if len(tensors) != len(args):
            key.append(_frozen(args))
        key_of_plan = tuple(key)
        plan = self._plans.get(key_of_plan)
        is_first = plan is None and overload.result == "None"
        if is_first:
            plan = _RETURNS_NOTHING
        if plan is None or self.waits:
            self._check(overload, args)
            return self._wait(overload, wire, tensors, parents, key_of_plan)
        if not session.is_open:
            session._require_open()
        number, shape, count, _ = plan
        outs = tuple([session.new_id() for _ in range(count)])
        result = None if not count and shape is None else _made(shape, session, iter(outs), tensors, parents, self)
        freed = session.take_dead() if session._dead else ()
        site = session.sites.current(1)
        session.queue(CallExtension(overload.number, site, outs, wire, number, None, freed), modes)
        if is_first:  # it may refuse operands like these, which the program would learn of later
            wait_where_caught(session, PATIENTLY)
            self._keep(key_of_plan, plan)
        return result

    def _select(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Overload, tuple[Any, ...]]:
        for overload in self._overloads:
            bound = overload.bind(args, kwargs)
            if bound is not None:
                return overload, bound
        raise self._mismatch(args, kwargs)

    def takes(self, args: tuple[Any, ...]) -> bool:
        """Whether one of the C++ functions takes these arguments."""
        return any(overload.bind(args, {}) is not None for overload in self._overloads)

    def _check(self, overload: Overload, args: tuple[Any, ...]) -> None:
        if not all(map(fits, args, overload.types)):
            raise self._mismatch(args, {})

    def _mismatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentTypeError:
        supported = "\n".join(f"    {n}. {o.signature('')}" for n, o in enumerate(self._overloads, 1))
        given = [*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in kwargs.items())]
        return ArgumentTypeError(
            f"{self.__name__}(): incompatible function arguments. The following argument types are supported:\n"
            f"{supported}\n\nInvoked with: {', '.join(given)}"
        )

    def _foreign(self, tensor: Tensor) -> DeviceError:
        if tensor._meta.device.type == "meta":
            return DeviceError(
                f"{self.__name__}: {tensor._meta} is on the meta device, which runs no C++; register its "
                "shapes in Python, by library.register_fake"
            )
        self._session._require_open()
        tensor._session._require_open()
        return DeviceError(
            f"{self.__name__}: the extension was loaded into another session than the tensor is in; load it there too"
        )

    def _wait(
        self, overload: Overload, wire: list[Any], tensors: list[Tensor], parents: list[Any], key: tuple[Any, ...]
    ) -> Any:
        """Call the function and wait for what it returns: one round trip."""
        session = self._session
        site = session.sites.current(2)
        wanted = ALWAYS_PLAN if self.waits is False else 0
        answer = session.request(lambda number: CallExtension(overload.number, site, (), wire, wanted, number))
        shape, plan = answer.value
        ids: list[int] = []
        fixed = _fixed(shape, ids, self._of_class)
        if plan and self.waits is not True:
            self._keep(key, (plan, fixed, len(ids), self._usual(fixed, len(ids))))
        return _made(fixed, session, iter(ids), tensors, parents, self)

    def _of_class(self, kind: int, first: int, second: int) -> Any:
        """Return what stands for a new instance of one of the extension's classes, or a value of an enumeration."""
        if kind == ENUMERATOR:
            return self._classes[first](second)
        return self._classes[second]._holding(self._session, first)

    def _usual(self, fixed: Any, count: int) -> tuple[Any, ...] | None:
        """Return what a call in C makes: one new tensor with its own memory, or nothing; None for what is unusual."""
        if fixed.__class__ is _New and fixed.base < 0:
            return fixed.meta, fixed.requires_grad, f"{self.__name__}Backward"
        return () if fixed is None and not count else None

    def _keep(self, key: tuple[Any, ...], plan: Plan) -> None:
        """Let later calls of a kind go on without waiting."""
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[key] = plan


class _New(NamedTuple):
    """A new tensor that a call returns: all but its number."""

    meta: Meta
    requires_grad: bool
    base: int


class _Given(NamedTuple):
    """A tensor that a call was given and returns."""

    position: int


def _fixed(shown: Any, ids: list[int], of_class: Callable[[int, int, int], Any]) -> Any:
    """Return what a call returns without the numbers of new tensors, which are added to ``ids``.

    ``of_class`` makes what stands for an instance of a class, which no plan holds, and values of enumerations.
    """
    if not isinstance(shown, (list, tuple)):
        return shown
    kind, content = shown[0], shown[1]
    if kind == NEW:
        ids.append(content)
        shape, strides, offset, dtype, device = shown[2]
        meta = Meta.of(tuple(shape), dtypes.of_code(dtype), Device(device), tuple(strides), offset)
        return _New(meta, shown[3], shown[4])
    if kind == GIVEN:
        return _Given(content)
    if kind == LIST:
        return [_fixed(item, ids, of_class) for item in content]
    if kind == TUPLE:
        return tuple([_fixed(item, ids, of_class) for item in content])
    if kind == DICT:
        return {_fixed(k, ids, of_class): _fixed(v, ids, of_class) for k, v in content}
    if kind in (INSTANCE, ENUMERATOR):
        return of_class(kind, content, shown[2])
    if kind == SET:
        return {_fixed(item, ids, of_class) for item in content}
    if kind == DTYPE:
        return dtypes.of_code(content)
    return Device(content) if kind == DEVICE else complex(content, shown[2])


def plain_value(shown: Any, classes: dict[int, type[Any]]) -> Any:
    """Return a value without tensors, such as the default of a parameter."""

    def enumerator(kind: int, number: int, value: int) -> Any:
        if kind != ENUMERATOR:
            raise ExtensionError("an instance of a class cannot be a default or an attribute")
        return classes[number](value)

    return _fixed(shown, [], enumerator)


def _made(
    fixed: Any, session: ClientSession, ids: Any, tensors: list[Tensor], parents: list[Any], function: ExtensionFunction
) -> Any:
    """Return what a call returns, with handles on its tensors."""
    kind = fixed.__class__
    if kind is _New:
        result = Tensor(session, next(ids), fixed.meta)
        if fixed.requires_grad and parents:
            result._requires_grad, result._node = True, OperationNode(tuple(parents), f"{function.__name__}Backward")
        if fixed.base >= 0:
            _share(result, tensors[fixed.base])
        if thread.modes.inference:
            result._is_inference = True
        return result
    if kind is _Given:
        return tensors[fixed.position]
    if kind is list:
        return [_made(item, session, ids, tensors, parents, function) for item in fixed]
    if kind is tuple:
        return tuple([_made(item, session, ids, tensors, parents, function) for item in fixed])
    if kind is dict:
        return {k: _made(v, session, ids, tensors, parents, function) for k, v in fixed.items()}
    return fixed


def _share(view: Tensor, source: Tensor) -> None:
    """Let a result that shares the memory of an argument be a view of it."""
    root = source._base if source._base is not None else source
    if root._aliases is None:
        root._aliases = Aliases()
    view._base, view._aliases, view._seen = root, root._aliases, root._aliases.version


def _frozen(value: Any) -> Any:
    """Return what of arguments is part of a key: values with their types, nothing of tensors."""
    if isinstance(value, Tensor):
        return Tensor
    if isinstance(value, (list, tuple)):
        return tuple([_frozen(item) for item in value])
    if isinstance(value, dict):
        return tuple([(k, _frozen(v)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return frozenset(map(_frozen, value))
    if isinstance(value, ExtensionInstance):
        return type(value)
    return value.__class__, repr(value) if isinstance(value, float) else value


def _shown(value: Any) -> str:
    return f"a tensor {value._meta}" if isinstance(value, Tensor) else repr(value)
