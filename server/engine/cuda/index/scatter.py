"""Writing where indices point: scatter and its reductions, index_add, index_copy, index_fill, index_put, put.

All are one kernel over the source's shape, see ``index_text``. In place, a first launch checks all indices, and the
second does nothing if one is out of range; a new tensor is written to at once. Sums are made by atomics, in
float32 for halves; where a session wants determinism, the generic kernels sort. What ``scatter_rows`` and
``scatter_sums`` take goes there first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from server.engine import context, keys
from server.engine import functional as F
from server.engine.array_library import indexing as arrays
from server.engine.array_library.cache_blocks import number
from server.engine.array_library.dtypes import HALVES, NUMPY_DTYPES
from server.engine.autograd.inplace import requires_grad
from server.engine.checks import Check
from server.engine.cuda.rows.rowwise import byte_offset, dense, fits_grid
from server.engine.cuda.runtime import geometry
from server.engine.cuda.runtime.faults import FAULTS, expect, record_of
from server.engine.cuda.runtime.launch import load
from server.engine.cuda.runtime.prelude import CTYPES, PRELUDE, assembled
from server.engine.device.cupy_module import cp
from server.engine.integers.elements import uncount_write
from server.engine.operators import OPERATORS, Request
from server.engine.registry import prepares
from server.engine.value import Launch, Value
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size, broadcast_strides
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import indexing as ops
from telegrad_protocol.ops import scattering as element_ops

from .index_text import ATOMICS, SCALED, STORING, THREADS, storing
from .indexing import Indexed, Iteration, across, along, placed, places, vector

DEVICE_TO_DEVICE = 3
"""``cudaMemcpyDeviceToDevice``."""
_HOW = {"sum": "Add", "prod": "Multiply", "amax": "Max", "amin": "Min", None: "Assign"}
_WRITE, _WRITE_IF_GOOD, _CHECK = range(3)
_FORMATS = {1: "b", 2: "h", 4: "i", 8: "q"}


class Source(NamedTuple):
    """What is written: an argument seen with some strides, or a number; either times ``alpha``."""

    position: int | None
    meta: Meta | None
    strides: Size
    number: Any = 0
    alpha: Any = 1


class Store:
    """A prepared write into an indexed target of one meta."""

    def __init__(
        self, request: Request, placement: Indexed, target: Meta, source: Source, how: str | None, index: Sequence[Meta]
    ) -> None:
        self.backend = request.backend
        offset = source.meta.offset if source.meta is not None else 0
        itemsize = max(target.dtype.itemsize, source.meta.dtype.itemsize if source.meta is not None else 0)
        self.iteration = Iteration(placement, source.strides, offset, target.offset, itemsize)
        self.is_nothing = not self.iteration.count or not self.iteration.layout.numel
        self._source, self._target = source, target
        self._offsets = (byte_offset(target), byte_offset(source.meta) if source.meta is not None else 0)
        self._index_offsets = [byte_offset(meta) for meta in index]
        if not self.is_nothing and fits_grid(self.iteration.grid):
            self._fire = self._prepared(placement, how, index)

    def _prepared(self, placement: Indexed, how: str | None, index: Sequence[Meta]) -> Any:
        iteration, target = self.iteration, self._target
        kinds = [CTYPES[meta.dtype] for meta in index]
        given = CTYPES[self._source.meta.dtype if self._source.meta is not None else target.dtype]
        text = storing(
            _HOW[how],
            CTYPES[target.dtype],
            given,
            iteration.width,
            iteration.type,
            kinds,
            iteration.items,
            placement.wraps,
        )
        kernel = load(assembled(PRELUDE, geometry.INDEXING, FAULTS, ATOMICS, SCALED, STORING, text), "run")
        scales = self._source.alpha != 1
        numbers: list[Any] = [
            _bytes(self._source.number, target.dtype), _bytes(self._source.alpha, _computed(target.dtype)),
            ("int", int(scales)),
        ]  # fmt: skip
        varying = "PP" + "P" * len(kinds) + "PQi"
        return kernel.prepare(iteration.grid, THREADS, varying, [*iteration.constants, *numbers])

    def run(self, target: int, source: Value | None, index: Sequence[Value], tag: int, mode: int) -> None:
        """Launch it; ``target`` is the address of the storage."""
        o, s = self._offsets
        if self._source.position is None:
            source = None
        self._fire(
            self.backend.stream, target + o, source.storage.block.pointer + s if source is not None else 0,
            *[value.storage.block.pointer + i for value, i in zip(index, self._index_offsets, strict=True)],
            record_of(self.backend).pointer, tag, mode,
        )  # fmt: skip


def _computed(dtype: DType) -> DType:
    return dtypes.float32 if dtype in HALVES else dtype


def _bytes(value: Any, dtype: DType) -> bytes:
    """A number as an element of a type is held."""
    kind = NUMPY_DTYPES[dtype]
    return np.asarray(number(value, kind), kind).tobytes()


class Writing(NamedTuple):
    """One operation: where it writes, what, and how it is called in messages."""

    placement: Callable[[Meta], Indexed]
    source: Source
    how: str | None
    indices: tuple[Any, ...]
    """Positions of the index tensors among the arguments; pairs where they are in a list."""
    check: Check
    fresh: Any = None
    """What the indexed places are set to first, so that what was there does not count."""


def _write(request: Request, writing: Writing) -> Launch | None:
    """Launch in place if the result is the input, else on a copy of it."""
    input, out = request.args[0], request.outs[0]
    index = [_pick(request.args, position) for position in writing.indices]
    if out.dtype.is_complex and writing.how not in (None, "sum"):
        return None
    sums = writing.how in ("sum", "prod") and out.dtype in HALVES
    target = out.like(out.shape, dtypes.float32) if sums else out
    store = Store(request, writing.placement(target), target, writing.source, writing.how, index)
    if not store.is_nothing and not fits_grid(store.iteration.grid):
        return None
    first = None
    if writing.fresh is not None:
        source = Source(None, None, (0,) * len(writing.placement(target).shape), writing.fresh)
        first = Store(request, writing.placement(target), target, source, None, index)
    is_sum = writing.how == "sum" and out.dtype.is_differentiable
    generic = generic_kernel(request) if is_sum else None
    copies = _copier(request, input, out)
    wide = target if sums else None

    def launch(args: Any, outs: Any) -> None:
        if generic is not None and context.current.switches.deterministic_algorithms:
            request.backend.flush()
            generic(args, outs)
            return
        result = outs[0]
        in_place = result.storage is args[0].storage
        source = args[writing.source.position] if writing.source.position is not None else None
        if in_place and source is not None and source.storage is result.storage:
            source = F.clone(source.alias())
        given = [_pick(args, position) for position in writing.indices]
        if not in_place:
            copies(args[0], result)
        if not store.is_nothing:
            _run(request.backend, (first, store), result, source, given, (writing.check, args, in_place), wide)

    return launch


def _run(
    backend: Any, stores: tuple[Store | None, Store], result: Value, source: Value | None, index: Sequence[Value],
    call: tuple[Check, Any, bool], wide: Meta | None,
) -> None:  # fmt: skip
    check, args, in_place = call
    record, mode = record_of(backend), _WRITE
    if in_place:
        tag = expect(check, _unwritten(result))
        if tag:
            stores[1].run(result.storage.block.pointer, source, index, tag, _CHECK)
            record.mark()
        mode, tag = _WRITE_IF_GOOD, 0
        _wait_if_recorded(args)
    else:
        tag = expect(check)
    is_expected = tag != 0
    target = result.storage.block.pointer
    if wide is not None:
        holder = dense(F._to_copy(result.alias(), dtype=dtypes.float32))
        target = holder.storage.block.pointer
    for store in stores:
        if store is not None:
            store.run(target, source, index, tag, mode)
            tag = 0
    if wide is not None:
        F.copy_(result.alias(), holder)
        uncount_write(result.storage)
    if is_expected:
        record.mark()


def _unwritten(result: Value) -> Callable[[], None]:
    """Takes back that the result's storage was counted as written to."""
    return partial(uncount_write, result.storage)


def _wait_if_recorded(args: Any) -> None:
    """Where autograd is about to rewrite history, what is wrong must show before."""
    ctx = context.current
    if ctx.checks.outstanding and ctx.grad_enabled and any(_is_recorded(arg) for arg in args):
        fault = ctx.checks.poll(wait=True)
        if fault is not None:
            raise fault.error


def _is_recorded(arg: Any) -> bool:
    if arg.__class__ is tuple:
        return any(_is_recorded(item) for item in arg)
    return arg.__class__ is Value and requires_grad(arg)


def _pick(args: Any, position: Any) -> Any:
    return args[position[0]][position[1]] if position.__class__ is tuple else args[position]


def _copier(request: Request, input: Meta, out: Meta) -> Callable[[Value, Value], None]:
    """Copies the input into the result: byte for byte where they are laid out alike."""
    if not (input.is_dense and input.strides == out.strides and input.dtype is out.dtype and input.shape == out.shape):

        def copy(source: Value, result: Value) -> None:
            F.copy_(result.alias(), source.alias())
            uncount_write(result.storage)

        return copy
    backend, i, o, nbytes = request.backend, byte_offset(input), byte_offset(out), input.nbytes
    move, way = cp and cp.cuda.runtime.memcpyAsync, DEVICE_TO_DEVICE

    def move_bytes(source: Value, result: Value) -> None:
        if nbytes:
            backend.flush()
            move(result.storage.block.pointer + o, source.storage.block.pointer + i, nbytes, way, backend.stream)

    return move_bytes


def generic_kernel(request: Request) -> Launch:
    """The kernel over arrays, which adds in a fixed order."""
    op = request.op
    kernel = OPERATORS[op.name].kernels[keys.CUDA].function
    names = [p.name for p in op.params[op.positional :]]

    def launch(args: Any, outs: Any) -> None:
        given = [_array(arg) for arg in args]
        kernel(cp, *given[: op.positional], **dict(zip(names, given[op.positional :])), out=outs[0].array)

    return launch


def _array(arg: Any) -> Any:
    if arg.__class__ is tuple:
        return tuple([_array(item) for item in arg])
    return arg.array if arg.__class__ is Value else arg


def _tensor(position: int, meta: Meta, shape: Size | None = None) -> Source:
    return Source(
        position, meta, vector(meta)[1] if shape is None else broadcast_strides(meta.shape, meta.strides, shape)
    )


def _nothing(request: Request) -> Launch:
    """A copy of the input, where no index points anywhere."""
    copies = _copier(request, request.args[0], request.outs[0])

    def launch(args: Any, outs: Any) -> None:
        if outs[0].storage is not args[0].storage:
            copies(args[0], outs[0])

    return launch


def _along(
    request: Request, name: str, source: Source | None, how: str | None, fresh: Any = None
) -> Launch | None:  # fmt: skip
    input, dim, index, src = request.args[:4]
    if not index.numel:
        return _nothing(request)
    shape = vector(index)[0]
    source = source or _tensor(3, src)
    check = Check(name, places(input, [dim]))
    return _write(request, Writing(lambda m: along(m, dim, index, shape), source, how, (2,), check, fresh))


_REDUCES = {"add": "sum", "multiply": "prod", None: None}


@prepares(element_ops.scatter, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def scatter(request: Request) -> Launch | None:
    return _along(request, "scatter", None, _REDUCES[request.args[4]])


@prepares(element_ops.scatter_value, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def scatter_value(request: Request) -> Launch | None:
    _, _, index, value, reduce = request.args
    return _along(request, "scatter", Source(None, None, (0,) * len(vector(index)[0]), value), _REDUCES[reduce])


@prepares(element_ops.scatter_add, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def scatter_add(request: Request) -> Launch | None:
    return _along(request, "scatter_add", None, "sum")


@prepares(element_ops.scatter_reduce, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def scatter_reduce(request: Request) -> Launch | None:
    input, _, _, _, reduce, include_self = request.args
    if reduce == "mean":
        return None
    fresh = None if include_self else arrays.identity(reduce, NUMPY_DTYPES[_computed(input.dtype)])
    return _along(request, "scatter_reduce", None, reduce, fresh)


def _across(request: Request, name: str, source: Source, how: str | None) -> Launch | None:
    input, dim, index = request.args[:3]
    if not index.numel or not input.numel:
        return _nothing(request) if not index.numel else None
    check = Check(name, places(input, [dim]))
    return _write(request, Writing(lambda m: across(m, dim, index), source, how, (2,), check))


@prepares(ops.index_add, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def index_add(request: Request) -> Launch | None:
    source = _tensor(3, request.args[3])
    return _across(request, "index_add", source._replace(alpha=request.args[4]), "sum")


@prepares(ops.index_copy, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def index_copy(request: Request) -> Launch | None:
    return _across(request, "index_copy", _tensor(3, request.args[3]), None)


@prepares(ops.index_fill, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def index_fill(request: Request) -> Launch | None:
    input, _, _, value = request.args
    strides = (0,) * max(input.ndim, 1)
    if isinstance(value, Meta):
        source = Source(3, value, strides)
        if value.dtype.is_complex and not input.dtype.is_complex:
            return None
    else:
        source = Source(None, None, strides, value)
    return _across(request, "index_fill", source, None)


@prepares(ops.index_put, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def index_put(request: Request) -> Launch | None:
    input, indices, values, accumulate = request.args
    if ops.has_masks(indices):
        return None
    at = [d for d, index in enumerate(indices) if index is not None]
    placement = placed("index_put", input, indices)
    if isinstance(values, Meta):
        source = _tensor(2, values, placement.shape)
    else:
        source = Source(None, None, (0,) * len(placement.shape), values)
    check, positions = Check("index_put", places(input, at)), tuple([(1, d) for d in at])
    how = "sum" if accumulate else None
    return _write(request, Writing(lambda m: placed("index_put", m, indices), source, how, positions, check))


@prepares(element_ops.put, keys.CUDA, elementwise=True, deferrable_unchecked=True)
def put(request: Request) -> Launch | None:
    input, index, source, accumulate = request.args
    out = request.outs[0]
    if not out.is_contiguous:
        return None
    if not index.numel:
        return _nothing(request)
    flat = index.like((index.numel,)), source.like((source.numel,))
    placement = Indexed((index.numel,), (0,), ((1,),), (out.numel,), (1,), wraps=True)
    writing = Writing(
        lambda m: placement,
        Source(2, flat[1], (1,)),
        "sum" if accumulate else None,
        (1,),
        Check("put", (f"{out.numel} elements",)),
    )
    launch = _write(request._replace(args=(input, *flat, accumulate)), writing)
    return launch and (lambda args, outs: launch((args[0], *_flat(args[1]), *_flat(args[2]), accumulate), outs))


def _flat(value: Value) -> tuple[Value, ...]:
    """The value row-major and at the beginning of its storage."""
    value = dense(value)
    return (value if not value.meta.offset else F.clone(value.alias()),)
