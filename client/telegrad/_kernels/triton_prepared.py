"""Launches that came before: what Triton's binder and specialisation would find out again is kept and looked up.

A launch is known by how its arguments are given, by their types and by what Triton specialises on: alignments, numbers
that are 1 or divisible by 16, their sizes in bits, and constants by their values. What is known is Triton's compiled
kernel and how the arguments become those of an instruction. Arguments that equal earlier ones, with tensors of the same
metas, are found in one step. Whatever is less usual is left to Triton: descriptors, tuples, hooks, scratch memory.
Knows nothing of Triton but the attributes of its functions.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.kernel_messages import ADDRESS, FLOAT, INTEGER, NULL

from .remote_kernel import RemoteKernel

_OWNER: Final = "_telegrad_launches"
_MOST_KNOWN: Final = 1024
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_ABSENT: Final = object()
_NONE: Final[dict[Any, Any]] = {}
_CLASSES: Final = {ADDRESS: Tensor, INTEGER: int, FLOAT: float}


class Geometry(NamedTuple):
    """What the launches of a compiled kernel have in common, beside its arguments."""

    block: tuple[int, int, int]
    ctas: int
    shared: int
    cluster: tuple[int, int, int] | None
    flags: int


class Done(NamedTuple):
    """A launch that was made: the kernel, the forms of its parameters, and the places of those among the arguments."""

    remote: RemoteKernel
    forms: str
    places: list[int]
    geometry: Geometry


class _Noted(threading.local):
    done: Done | None = None


noted: Final = _Noted()
"""The last launch of each thread that can be made again without Triton."""


class _Launch(NamedTuple):
    """A launch that is known. ``picked`` are the arguments that the kernel takes; None where it takes all."""

    kernel: Any
    remote: RemoteKernel
    forms: str
    picked: tuple[int, ...] | None
    geometry: Geometry


class _Equal(NamedTuple):
    """A launch as it was made of arguments that compare equal.

    ``values`` are those of the instruction; ``varying`` are the places, in it and among the arguments, of what differs
    nevertheless: tensors, and floating-point numbers, of which 0 and -0 are equal.
    """

    launch: _Launch
    values: list[Any]
    varying: tuple[tuple[int, int, bool], ...]


class _Pattern:
    """One way in which the arguments of a function are given: how many by their places, and the names of the others.

    ``names`` are those of all arguments in the order given, with defaults at the end; ``are_constants`` tells which of
    them are part of what is compiled.
    """

    def __init__(self, function: Any, positional: int, keywords: tuple[str, ...]) -> None:
        parameters = {parameter.name: parameter for parameter in function.params}
        given = (*list(parameters)[:positional], *keywords)
        left = [parameter for name, parameter in parameters.items() if name not in given]
        self.is_usual = len(set(given)) == positional + len(keywords) and all(one.has_default for one in left)
        self.defaults = tuple([parameter.default for parameter in left]) if self.is_usual else ()
        self.names = (*given, *[parameter.name for parameter in left])
        self.are_constants = tuple(
            [name not in parameters or parameters[name].is_constexpr for name in self.names],
        )
        self.parameters = tuple(parameters)
        self._order = [self.names.index(name) for name in self.parameters] if self.is_usual else []
        self.tensors: dict[tuple[type, ...], tuple[int, ...]] = {}
        """The places of tensors among the arguments, by the types of these."""

    def bound(self, given: tuple[Any, ...]) -> dict[str, Any]:
        """Return the arguments by the names of the parameters, for a grid that is a function of them."""
        return dict(zip(self.parameters, [given[place] for place in self._order]))

    def equal_key(self, function: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return what arguments are known by that are equal to these; None where there are no tensors."""
        types = tuple(map(type, given))
        tensors = self.tensors.get(types)
        if tensors is None:
            if len(self.tensors) >= _MOST_KNOWN:
                self.tensors.clear()
            tensors = self.tensors[types] = tuple(
                [place for place, kind in enumerate(types) if issubclass(kind, Tensor)]
            )
        if not tensors:
            return None
        key = [*given]
        for place in tensors:
            key[place] = given[place]._meta
        return self, function.debug, types, *key

    def picked(self, done: Done, given: tuple[Any, ...]) -> tuple[int, ...] | None:
        """Return which of the arguments that are no constants the kernel takes; None if it takes one in another way.

        ``done`` is the launch that Triton has made of these arguments.
        """
        variables = [name for name, is_constant in zip(self.names, self.are_constants, strict=True) if not is_constant]
        named = dict(zip(self.names, given, strict=True))
        picked = []
        for place, form in zip(done.places, done.forms, strict=False):
            name = self.parameters[place]
            if form == NULL and named[name] is None:
                continue
            if not isinstance(named[name], _CLASSES.get(form, ())):
                return None
            picked.append(variables.index(name))
        return tuple(picked)


class _Launches:
    """What is known of one of Triton's functions; sessions keep the launches for as long as this lives."""

    def __init__(self, function: Any) -> None:
        self.caches = function.device_caches
        self.patterns: dict[tuple[Any, ...], _Pattern] = {}

    def pattern(self, function: Any, positional: int, keywords: tuple[str, ...]) -> _Pattern:
        """Return the pattern of a call."""
        key = (positional, keywords)
        known = self.patterns.get(key)
        if known is None:
            if len(self.patterns) >= _MOST_KNOWN:
                self.patterns.clear()
            known = self.patterns[key] = _Pattern(function, positional, keywords)
        return known


def launch(function: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launch as such a call was launched before, and return Triton's compiled kernel; None where none was."""
    owner = function.__dict__.get(_OWNER)
    if owner is None or not owner.caches or function.pre_run_hooks:  # Triton's caches may have been cleared
        return None
    keywords = tuple(kwargs)
    pattern = owner.patterns.get((len(args), keywords))
    if pattern is None or not pattern.is_usual:
        return None
    given = (*args, *kwargs.values(), *pattern.defaults)
    try:
        known, values = _find(function, owner, pattern, given)
    except TypeError:  # a constant that cannot be hashed
        return None
    if known is None or _has_changed_globals(function):
        return None
    kernel, remote, forms, _, (block, ctas, shared, cluster, flags) = known
    sizes = grid(pattern.bound(given)) if callable(grid) else grid
    x, y, z = (*map(int, sizes), 1, 1)[:3]
    if x > 0 and y > 0 and z > 0:
        remote.launch((x * ctas, y, z), block, forms, values, shared, cluster, flags)
    return kernel


def _find(
    function: Any, owner: _Launches, pattern: _Pattern, given: tuple[Any, ...]
) -> tuple[_Launch | None, list[Any]]:
    """Return how a launch like this one was made, and the values of its instruction; None where none was."""
    equal_key = pattern.equal_key(function, given)
    if equal_key is None:
        return None, []
    tensors = pattern.tensors[equal_key[2]]
    session = given[tensors[0]]._session
    launches = getattr(session, "kernels", _NONE).get(owner)
    if launches is None:
        return None, []
    equal: _Equal | None = launches.get(equal_key)
    if equal is not None:
        values = [*equal.values]
        for place, argument, is_tensor in equal.varying:
            arg = given[argument]
            if is_tensor:
                if arg._session is not session:
                    return None, []
                arg = arg._id
            values[place] = arg
        return equal.launch, values
    looked = _looked_at(pattern.are_constants, given)
    if looked is None:
        return None, []
    _, key, values = looked
    known: _Launch | None = launches.get((pattern, function.debug, *key))
    if known is None:
        return None, []
    picked = range(len(values)) if known.picked is None else known.picked
    values = [values[place] for place in picked]
    if len(launches) < _MOST_KNOWN:
        launches[equal_key] = _Equal(known, [*values], _varying(pattern, picked, given))
    return known, values


def _varying(pattern: _Pattern, picked: Sequence[int], given: tuple[Any, ...]) -> tuple[tuple[int, int, bool], ...]:
    """Return the places of tensors and floating-point numbers, as ``_Equal`` has them."""
    arguments = [place for place, is_constant in enumerate(pattern.are_constants) if not is_constant]
    chosen = [(place, arguments[number]) for place, number in enumerate(picked)]
    return tuple(
        [
            (place, argument, isinstance(given[argument], Tensor))
            for place, argument in chosen
            if isinstance(given[argument], (Tensor, float))
        ]
    )


def remember(function: Any, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keep how the launch that this thread has just noted was made, for calls like it."""
    done, noted.done = noted.done, None
    if done is None:
        return
    owner = function.__dict__.get(_OWNER)
    if owner is None or owner.caches is not function.device_caches:
        owner = function.__dict__[_OWNER] = _Launches(function)
    pattern = owner.pattern(function, len(args), tuple(kwargs))
    given = (*args, *kwargs.values(), *pattern.defaults)
    looked = _looked_at(pattern.are_constants, given) if pattern.is_usual else None
    picked = None if looked is None else pattern.picked(done, given)
    if looked is None or picked is None:
        return
    session, key, values = looked
    takes_all = picked == tuple(range(len(values)))
    known = _Launch(kernel, done.remote, done.forms, None if takes_all else picked, done.geometry)
    launches = session.kernels.setdefault(owner, {})
    if len(launches) >= _MOST_KNOWN:
        launches.clear()
    launches[(pattern, function.debug, *key)] = known


def _looked_at(are_constants: tuple[bool, ...], given: tuple[Any, ...]) -> tuple[Any, list[Any], list[Any]] | None:
    """Return the session of the arguments, what they are known by, and what stands for those that are no constants.

    None where an argument is not one of tensors of one GPU, Python's numbers, and None.
    """
    session: Any = None
    key: list[Any] = []
    values: list[Any] = []
    for arg, is_constant in zip(given, are_constants, strict=True):
        kind = arg.__class__
        if is_constant:
            key += kind, arg
        elif kind is int:
            # Bit 0: divisible by 16; above it: how many bits it takes, or that it is 1.
            size = 0 if -_INT32 <= arg < _INT32 else 2 if -_INT64 <= arg < _INT64 else 4
            key.append(6 if arg == 1 else size + (not arg & 15))
            values.append(arg)
        elif isinstance(arg, Tensor):
            meta = arg._meta
            if arg._session is not session:
                if session is not None or meta.device.type != "cuda":
                    return None
                session, device = arg._session, meta.device
                key.append(device.name)
            if meta.device is not device:
                return None
            key += meta.dtype, not meta.offset * meta.dtype.itemsize & 15
            values.append(arg._id)
        elif kind is float or arg is None:
            key.append(kind)
            values.append(arg)
        elif kind is bool:
            key.append(kind)
            values.append(int(arg))
        else:
            return None
    return None if session is None or not hasattr(session, "kernels") else (session, key, values)


def _has_changed_globals(function: Any) -> bool:
    """Tell whether a global that the kernel was compiled with has another value now, which Triton refuses."""
    for (name, _), (value, variables) in function.used_global_vals.items():
        if variables.get(name, _ABSENT) != value:
            return True
    return False
