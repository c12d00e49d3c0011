"""Values over new memory, and the end of storage, in C where that is compiled: the same as `prepared` and `value` say.

Knows no devices and no operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from server.allocator.native_calls import module as module
from server.engine import context
from server.engine.value import Backend, Launch, Storage, Value
from telegrad_protocol.meta import Meta

finalize_in_python: Final = Storage.__del__
"""Ends storage where nothing is in C, and where something is about it that is unusual."""


def _prepare() -> None:
    classes = (Storage, Value, Backend, context.Context)
    Storage.__del__ = module.prepare_values({  # type: ignore[method-assign]
        **{kind.__name__: kind for kind in classes}, "finalize": finalize_in_python, "context": vars(context),
    })  # fmt: skip


if module is not None:
    _prepare()
new_value: Final[Callable[[Backend, int, int, Meta], Value] | None] = None if module is None else module.new_value
"""Makes a value over new memory of a backend, given the backend's key and the bytes; None where that is Python's."""


def run_of(backend: Backend, nbytes: int, meta: Meta, launch: Launch) -> Callable[[tuple[Any, ...]], Value] | None:
    """Return what allocates a value, has ``launch`` write it, and returns it; None where that is Python's."""
    if module is None:
        return None
    return module.bound_to_launch((backend, backend.key, nbytes, meta, launch))  # type: ignore[no-any-return]


def run_of_several(
    backend: Backend, outs: tuple[Meta, ...], launch: Launch
) -> Callable[[tuple[Any, ...]], tuple[Value, ...]] | None:  # fmt: skip
    """Return the same for an operation of several results, which are returned as a tuple."""
    if module is None:
        return None
    sizes = tuple([meta.extent * meta.dtype.itemsize for meta in outs])
    return module.bound_to_several((backend, backend.key, sizes, outs, launch))  # type: ignore[no-any-return]


def _beginnings_in_python(values: Sequence[Value]) -> list[int]:
    return [value.storage.block.pointer for value in values]


def _note_writes_in_python(args: tuple[Any, ...], places: tuple[int, ...]) -> None:
    for place in places:
        target = args[place]
        for value in target if target.__class__ is tuple else (target,):
            if value is not None:
                value.storage.version += 1


beginnings_of: Final[Callable[[Sequence[Value]], list[int]]] = (
    _beginnings_in_python if module is None else module.beginnings_of
)
"""Returns the addresses at which the memory of values begins."""
note_writes: Final[Callable[[tuple[Any, ...], tuple[int, ...]], None]] = (
    _note_writes_in_python if module is None else module.note_writes
)
"""Counts a modification of each argument in some places, and of each value of a tuple there, of which some are None."""
