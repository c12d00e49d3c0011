"""Plans of views: new values over the storage of an operand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from telegrad_protocol.errors import ShapeError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

from . import context
from .keys import AUTOGRAD
from .operators import Run
from .value import CHANGING, MULTIPLE, TRACKED, UNTRACKED, Storage, Value, memory_of, new_value

Arguments = tuple[Any, ...]


def view_run(op: Op, outs: tuple[Meta, ...] | None, is_single: bool) -> Run:
    """Make views of the operand ``op.view_of`` with the metas ``outs``."""
    place: int = op.view_of  # type: ignore[assignment]
    metas = outs or ()
    if op.name == "_unversioned":
        return _unversioned_view(place)
    if not op.differentiable:
        return _detached_view(op, place, metas)
    return _one_view(op, place, *metas) if is_single else _several_views(op, place, metas)


def _detached_view(op: Op, place: int, metas: tuple[Meta, ...]) -> Run:
    """A value over the same storage that autograd does not know as a view."""

    def run(args: Arguments) -> Value:
        source = args[place]
        _check_bounds(op, metas, source)
        return Value(source.storage, metas[0], source.backend)

    return run


def _unversioned_view(place: int) -> Run:
    """A value over the same memory whose modifications are counted apart: saved tensors do not see them."""

    def run(args: Arguments) -> Value:
        source = args[place]
        kept = memory_of(source.storage)
        kept.elements = CHANGING
        return Value(Storage(kept.backend, kept.block, kept.nbytes, kept), source.meta, source.backend)

    return run


def _several_views(op: Op, place: int, metas: tuple[Meta, ...]) -> Run:
    def run(args: Arguments) -> tuple[Value, ...]:
        source = args[place]
        _check_bounds(op, metas, source)
        base = source if source.base is None else source.base
        views = tuple([Value(source.storage, meta, source.backend, base) for meta in metas])
        current = context.current
        origin = MULTIPLE if current.grad_enabled and not current.inference else UNTRACKED
        for view in views:
            view.origin = origin
        return views

    return run


def _one_view(op: Op, place: int, meta: Meta) -> Run:
    """The usual case: what needs no operand is worked out beforehand."""
    bound = op, place, meta.extent * meta.dtype.itemsize, meta
    return partial(view, *bound) if view_in_c is None else view_in_c(bound)


def view(op: Op, place: int, nbytes: int, meta: Meta, args: Arguments) -> Value:
    """Make the view with this meta, which needs so many bytes, of one of the operands."""
    source = args[place]
    storage, base = source.storage, source.base
    if nbytes > storage.nbytes:
        _check_bounds(op, (meta,), source)
    made: Value = new_value()
    made.storage, made.meta, made.backend = storage, meta, source.backend
    made.autograd = made._array = None
    made.keys, made.seen = source.backend.key | AUTOGRAD, storage.version
    if base is None:
        made.base, made.origin = source, TRACKED
    else:
        made.base, made.origin = base, source.origin
    if context.current.excluded & AUTOGRAD:
        made.origin = UNTRACKED
    return made


view_in_c: Callable[[tuple[Op, int, int, Meta]], Run] | None = None
"""Returns what makes a view as ``view`` does, where that is compiled."""


def view_below_autograd(meta: Meta) -> Run:
    """Make a view with this meta of the memory of the only operand, where autograd is excluded."""
    nbytes = meta.extent * meta.dtype.itemsize

    def run(args: Arguments) -> Value:
        source = args[0]
        storage, base = source.storage, source.base
        if nbytes > storage.nbytes:
            raise ShapeError(f"a view of {meta} needs {nbytes} bytes, the storage has {storage.nbytes}")
        view: Value = new_value()
        view.storage, view.meta, view.backend = storage, meta, source.backend
        view.autograd = view._array = None
        view.keys, view.seen = source.backend.key | AUTOGRAD, storage.version
        view.base, view.origin = source if base is None else base, UNTRACKED
        return view

    return run


def _check_bounds(op: Op, metas: tuple[Meta, ...], source: Value) -> None:
    """Refuse a view beyond its storage; only ``as_strided`` can ask for one."""
    for meta in metas:
        nbytes = meta.extent * meta.dtype.itemsize
        if nbytes > source.storage.nbytes:
            raise ShapeError(
                f"{op.public}: sizes {list(meta.shape)}, strides {list(meta.strides)} and "
                f"offset {meta.offset} need {nbytes} bytes, the storage has {source.storage.nbytes}"
            )
