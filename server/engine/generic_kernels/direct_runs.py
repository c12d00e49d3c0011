"""Runs of generic kernels whose conversions are known beforehand: as ``kernel`` says, with nothing looked up.

What a call needs is told by metas, of which a plan is made: where arrays go among the arguments, what they are cast to,
and which attributes are fixed. Operands on other devices, named operands and kernels that want metas are left to
``kernel``.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from server.engine import context
from server.engine.array_library.dtypes import COMPUTED_IN, NUMPY_DTYPES
from server.engine.in_c import arrays as arrays_in_c
from server.engine.operators import KernelInfo, Run
from server.engine.prepared import functional_run
from server.engine.value import Backend, Value
from telegrad_protocol.meta import CPU, Meta

Arguments = tuple[Any, ...]
Call = Callable[..., Any]
"""Calls a kernel on the arrays of arguments, with keywords such as ``out``."""
_array_of = attrgetter("array")


class KernelCall(NamedTuple):
    """What calls a kernel: a function of Python, and what that calls with which arguments, for C.

    ``places`` are those of arrays among the arguments, with the numbers of the operands; None where more is to be done.
    """

    call: Call
    function: Callable[..., Any]
    arguments: Arguments
    places: tuple[tuple[int, int], ...] | None
    keywords: dict[str, Any]


def call_of(
    info: KernelInfo, backend: Backend, names: tuple[str, ...], bound: Arguments, casts: dict[int, Any]
) -> KernelCall | None:  # fmt: skip
    """Return what calls a kernel; None for arguments that need more than casts.

    ``bound`` are the arguments of the operation, values replaced by their metas, and its last ones are those that go by
    ``names``; ``casts`` are the types that arrays are cast to, by position.
    """
    positional = len(bound) - len(names)
    if info.wants_meta or _holds_metas(bound[positional:]) or not _are_here(bound, backend):
        return None
    lists = [place for place, item in enumerate(bound) if item.__class__ is tuple and _holds_metas(item)]
    if any([place in casts for place in lists]):
        return None
    keywords = dict(zip(names, bound[positional:], strict=True))
    arrays = [(place, _dtype_of(casts, place)) for place, item in enumerate(bound) if item.__class__ is Meta]
    call = _caller(info.function, backend.xp, bound[:positional], arrays, lists, keywords)
    places = None
    if info.wants_generator:
        call = _drawing(call, backend)
    elif not casts:
        places = tuple([(1 + place, place) for place in (*[place for place, _ in arrays], *lists)])
    return KernelCall(call, info.function, (backend.xp, *bound[:positional]), places, keywords)


def _dtype_of(casts: dict[int, Any], place: int) -> Any:
    return NUMPY_DTYPES[casts[place]] if place in casts else None


def _holds_metas(items: Arguments) -> bool:
    return any([item.__class__ is Meta or (item.__class__ is tuple and _holds_metas(item)) for item in items])


def _are_here(items: Arguments, backend: Backend) -> bool:
    """Whether all tensors among arguments are on a device, and lists of them hold nothing else."""
    return all([_are_all_here(item, backend) for item in items])


def _are_all_here(item: Any, backend: Backend) -> bool:
    if item.__class__ is tuple and _holds_metas(item):
        return all([one.__class__ is Meta and one.device is backend.device for one in item])
    return item.__class__ is not Meta or item.device is backend.device


def _caller(
    function: Callable[..., Any], xp: Any, bound: Arguments, arrays: list[tuple[int, Any]], lists: list[int],
    keywords: dict[str, Any],
) -> Call:  # fmt: skip
    if not lists and not any([dtype is not None for _, dtype in arrays]):
        places = [place for place, _ in arrays]
        if places == [0]:
            rest = bound[1:]
            return lambda args, **more: function(xp, args[0].array, *rest, **keywords, **more)
        if places == [0, 1]:
            others = bound[2:]
            return lambda args, **more: function(xp, args[0].array, args[1].array, *others, **keywords, **more)

    def call(args: Arguments, **more: Any) -> Any:
        operands = list(bound)
        for place, dtype in arrays:
            array = args[place].array
            operands[place] = array if dtype is None else array.astype(dtype)
        for place in lists:
            operands[place] = tuple(map(_array_of, args[place]))
        return function(xp, *operands, **keywords, **more)

    return call


def _drawing(call: Call, backend: Backend) -> Call:
    device = backend.device

    def drawing(args: Arguments, **more: Any) -> Any:
        return call(args, generator=context.current.generators[device], **more)

    return drawing


def into_new(kernel: KernelCall, backend: Backend, outs: tuple[Meta, ...], is_single: bool, widens: bool) -> Run:
    """The run of a kernel that writes new values; ``widens``: half precision is computed as single precision."""
    call = kernel.call
    wide = [NUMPY_DTYPES[COMPUTED_IN[meta.dtype]] if widens and meta.dtype in COMPUTED_IN else None for meta in outs]
    if any([dtype is not None for dtype in wide]):
        return functional_run(backend, outs, is_single, _widened(call, backend, wide, is_single))
    launch = None
    if kernel.places is not None and backend.device is CPU:
        launch = arrays_in_c.launch_of(kernel.function, kernel.arguments, kernel.places, kernel.keywords, is_single)
    if launch is None and is_single:
        launch = lambda args, values: call(args, out=values[0].array)
    return functional_run(
        backend, outs, is_single, launch or (lambda args, values: call(args, out=tuple(map(_array_of, values))))
    )


def _widened(call: Call, backend: Backend, wide: list[Any], is_single: bool) -> Callable[..., None]:
    empty, store = backend.xp.empty, backend.store

    def launch(args: Arguments, values: tuple[Value, ...]) -> None:
        targets = [
            value.array if dtype is None else empty(value.meta.shape, dtype) for value, dtype in zip(values, wide)
        ]  # fmt: skip
        call(args, out=targets[0] if is_single else tuple(targets))
        for value, dtype, target in zip(values, wide, targets):
            if dtype is not None:
                store(value.array, target)

    return launch


def in_place(kernel: KernelCall, backend: Backend, bound: Arguments, updates: bool, otherwise: Run) -> Run:
    """The run of a kernel that writes the first operand; ``otherwise`` where another operand would change meanwhile.

    Other operands of the same meta may be the first one itself, unless the kernel ``updates`` some of its elements.
    """
    meta, call = bound[0], kernel.call
    apart = [
        place for place, item in enumerate(bound) if place and item.__class__ is Meta and (updates or item is not meta)
    ]  # fmt: skip
    lists = [place for place, item in enumerate(bound) if item.__class__ is tuple and _holds_metas(item)]
    if kernel.places is not None and backend.device is CPU and not lists:
        in_c = arrays_in_c.run_in_place(
            kernel.function, kernel.arguments, kernel.places, kernel.keywords, tuple(apart), otherwise
        )
        if in_c is not None:
            return in_c

    def run(args: Arguments) -> Any:
        target = args[0]
        storage = target.storage
        for place in apart:
            if args[place].storage is storage:
                return otherwise(args)
        for place in lists:
            if any([item is not None and item.storage is storage for item in args[place]]):
                return otherwise(args)
        call(args, out=target.array)
        storage.version += 1
        return target

    return run


def mutating(kernel: KernelCall, mutates: tuple[int, ...], has_result: bool, otherwise: Run) -> Run:
    """The run of an operation that only exists in place, and changes tensors one by one."""
    if len(mutates) != 1:
        return otherwise
    place, call = mutates[0], kernel.call

    def run(args: Arguments) -> Any:
        target = args[place]
        if target.__class__ is not Value:
            return otherwise(args)
        call(args)
        target.storage.version += 1
        return target if has_result else None

    return run
