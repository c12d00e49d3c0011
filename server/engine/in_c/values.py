"""Values over new memory, and the end of storage, in C where that is compiled: the same as `prepared` and `value` say.

Knows no devices and no operations.
"""

from __future__ import annotations

from collections.abc import Callable
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
