"""Launches that came before: what Triton's binder and specialisation would find out again is kept and looked up.

A launch is known by how its arguments are given, by their types and by what Triton specialises on: alignments, numbers
that are 1 or divisible by 16, their sizes in bits, and constants by their values. What is known is Triton's compiled
kernel and how the arguments become those of an instruction. Whatever is less usual is left to Triton: descriptors,
tuples, hooks, scratch memory. Knows nothing of Triton but the attributes of its functions.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.kernel_messages import ADDRESS, FLOAT, INTEGER, NULL

from .remote_kernel import RemoteKernel

_OWNER: Final = "_telegrad_launches"
_MOST_KNOWN: Final = 1024
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_ABSENT: Final = object()
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

    def bound(self, given: tuple[Any, ...]) -> dict[str, Any]:
        """Return the arguments by the names of the parameters, for a grid that is a function of them."""
        named = dict(zip(self.names, given, strict=True))
        return {name: named[name] for name in self.parameters}

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
    looked = _looked_at(pattern.are_constants, given)
    if looked is None:
        return None
    session, key, values = looked
    try:
        launches = session.kernels.get(owner)
        known = None if launches is None else launches.get((pattern, function.debug, *key))
    except TypeError:  # a constant that cannot be hashed
        return None
    if known is None or _has_changed_globals(function):
        return None
    kernel, remote, forms, picked, (block, ctas, shared, cluster, flags) = known
    sizes = grid(pattern.bound(given)) if callable(grid) else grid
    x, y, z = (*map(int, sizes), 1, 1)[:3]
    if x > 0 and y > 0 and z > 0:
        if picked is not None:
            values = [values[place] for place in picked]
        remote.launch((x * ctas, y, z), block, forms, values, shared, cluster, flags)
    return kernel


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
