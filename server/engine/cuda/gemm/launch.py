"""Launches of matrix products: on operands as they lie, or on copies that BLAS can take, or takes faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from server.engine.cuda.pointwise.copying import copying
from server.engine.cuda.runtime.launch import nothing
from server.engine.cuda.runtime.operands import ARGUMENT, NOTHING, RESULT, WORKSPACE, Place, on_operands, queued
from server.engine.value import Launch, Value
from telegrad_protocol.errors import OutOfMemoryError
from telegrad_protocol.layout import contiguous_strides, view_strides
from telegrad_protocol.meta import Meta

from . import cublaslt
from . import padding as gemm_padding
from .layout import Matrices
from .product import Product

Values = tuple[Any, ...]
Run = Callable[[int, int, int, int, int, int], None]
"""Runs on a stream, given the addresses of left, right, what is added, the result, and a bias or its gradient."""
Fire = Callable[..., None]
"""The call of a library behind it, given also the address of the workspace, before that of a bias."""


class Core(NamedTuple):
    """How a product is computed; ``fills``: what is added has to be in the result before.

    ``straight`` is a launch on operands as they lie, where there is one with nothing in between.
    """

    make_run: Callable[..., Run]
    parts: tuple[Any, ...] = ()
    fills: bool = False
    straight: Launch | None = None

    @property
    def run(self) -> Run:
        """What computes it on given addresses, which few products need that have ``straight``."""
        return self.make_run(*self.parts)


_STREAM, _A, _B, _C, _D, _WORKSPACE = 15, 3, 5, 8, 10, 13
"""Where among the arguments of ``matmul`` those are that change from run to run."""


def firing(backend: Any, described: cublaslt.Product, call: cublaslt.Call, is_biased: bool) -> Fire:
    """A call of cuBLASLt, which waits where launches do.

    It takes the stream, the addresses of A, B, C, D and of the workspace, and that of a bias or its gradient.
    """
    matmul, handle, operation, alpha, beta, a, b, c, d, opaque, size, _ = call
    arguments = (handle, operation, alpha, 0, a, 0, b, beta, 0, c, 0, d, opaque, 0, size, 0)
    places = (_STREAM, _A, _B, _C, _D, _WORKSPACE)
    return queued(backend.launches, matmul, arguments, places, described.set_bias if is_biased else None, call)


def straight(backend: Any, product: Product, fire: Fire, size: int, adds: bool, is_biased: bool) -> Launch:
    """A launch by cuBLASLt on operands as they lie; ``adds``: what is added is read, and not the result."""
    left, right = _place_of(product.left, product.left_at), _place_of(product.right, product.right_at)
    first, second = (left, right) if product.is_swapped else (right, left)
    out = RESULT, product.out_at, product.out.offset * product.out.dtype.itemsize
    places = [first, second, _place_beside(product) if adds else out, out]
    places.append((WORKSPACE, 0, cublaslt.WORKSPACE_BYTES) if size else NOTHING)
    if is_biased:
        places.append(_place_beside(product))
    return on_operands(backend, fire, places)


def direct(backend: Any, product: Product, core: Run) -> Launch:
    """A launch on operands as they lie."""
    left, right = _place_of(product.left, product.left_at), _place_of(product.right, product.right_at)
    out = RESULT, product.out_at, product.out.offset * product.out.dtype.itemsize
    third = _place_beside(product)
    return on_operands(backend, core, [left, right, third, out, third])


def _place_of(of: Matrices, number: int) -> Place:
    return ARGUMENT, number, of.offset * of.dtype.itemsize


def _place_beside(product: Product) -> Place:
    """Where what is added lies, or the bias's gradient; nothing is at 0."""
    if product.bias_gradient_at is not None:
        return RESULT, product.bias_gradient_at, 0
    if product.added is None:
        return NOTHING
    return ARGUMENT, product.added_at, product.added.offset * product.out.dtype.itemsize


def guarded(product: Product, plain: Launch, careful: Launch) -> Launch:
    """A launch that looks whether the result lies where a factor does."""
    left_at, right_at, out_at = product.left_at, product.right_at, product.out_at

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        written = outs[out_at].storage
        if args[left_at].storage is written or args[right_at].storage is written:
            careful(args, outs)
        else:
            plain(args, outs)

    return launch


def careful(backend: Any, product: Product, packed: Product, core: Run, fills: bool) -> Launch:
    """A launch that copies what BLAS cannot take, and computes elsewhere what would overwrite a factor."""
    out, added_at = packed.out, product.added_at
    left, right = _copied(backend, product.left_at, product.left), _copied(backend, product.right_at, product.right)
    fill, leave = _Copy(backend), _Copy(backend)

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        target = outs[product.out_at]
        kept: list[Value] = []
        at_left, at_right = left(args, kept), right(args, kept)
        aliases = product.may_alias and any(
            [args[p].storage is target.storage for p in (product.left_at, product.right_at)]
        )
        direct = product.out.is_blas and not aliases
        into = target if direct else backend.empty(_like(target, out))
        shown = into if direct else _shown_as(into, target)
        added = 0 if product.added is None else _start(args[added_at], product.added)
        if fills:
            fill(args[added_at], shown)
        beside = added if product.bias_gradient_at is None else _start(outs[product.bias_gradient_at], None)
        core(backend.stream, at_left, at_right, added, _start(into, product.out if direct else None), beside)
        if not direct:
            leave(shown, target)

    return launch


class _Copy:
    """Copies values into others, which have the same metas each time, by a kernel that is prepared for these."""

    __slots__ = ("_backend", "_launch", "_metas")

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._metas: tuple[Meta, Meta] | None = None
        self._launch: Launch = nothing

    def __call__(self, source: Value, target: Value) -> None:
        metas = source.meta, target.meta
        if metas != self._metas:
            self._metas, self._launch = metas, copying(self._backend, target.meta, source.meta)
        self._launch((source,), (target,))


def _like(target: Value, out: Matrices) -> Meta:
    """A row-major tensor, or one whose matrices are column-major as the target's are."""
    strides = (out.step, out.row_step, out.column_step) if out.batch > 1 else (out.row_step, out.column_step)
    shape = (out.batch, out.rows, out.columns) if out.batch > 1 else (out.rows, out.columns)
    return Meta.of(shape, out.dtype, target.device, strides)


def _start(value: Value, of: Matrices | None) -> int:
    offset = value.meta.offset if of is None else of.offset
    return value.storage.block.pointer + offset * value.meta.dtype.itemsize


def _shown_as(made: Value, target: Value) -> Value:
    """The memory that was made for a result, with the dimensions of the result: a vector is a matrix of one column."""
    meta, shape = made.meta, target.meta.shape
    if meta.shape == shape:
        return made
    strides = view_strides(meta.shape, meta.strides, shape)
    assert strides is not None  # a result of more dimensions is row-major, and so is what stands for it
    return Value(made.storage, meta.view(shape, strides), made.backend)


def _copied(backend: Any, at: int, of: Matrices) -> Callable[[Values, list[Value]], int]:
    """The address of a factor, or of a row-major copy of it that is kept until the launch is done."""
    if of.is_blas:
        return lambda args, kept: _start(args[at], of)
    copy = _Copy(backend)

    def address(args: Values, kept: list[Value]) -> int:
        source: Value = args[at]
        kept.append(backend.empty(source.meta.like(strides=contiguous_strides(source.meta.shape))))
        copy(source, kept[-1])
        return kept[-1].storage.block.pointer

    return address


def padded(backend: Any, product: Product, stand_in: Product, core: Run, plain: Launch) -> Launch:
    """A launch on padded copies of what is not aligned; ``plain`` where there is no memory for them."""
    left = _padding(backend, product.left_at, product.left, stand_in.left)
    right = _padding(backend, product.right_at, product.right, stand_in.right)
    out, out_at = product.out, product.out_at
    held = gemm_padding.memory_of(stand_in.out, backend) if stand_in.out is not out else None
    copy_out = gemm_padding.copying(stand_in.out, out)

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        kept: list[Value] = []
        try:
            at_left, at_right = left(args, kept), right(args, kept)
            into = None if held is None else backend.empty(held)
        except OutOfMemoryError:
            plain(args, outs)
            return
        target = _start(outs[out_at], out)
        at_out = target if into is None else into.storage.block.pointer
        core(backend.stream, at_left, at_right, 0, at_out, 0)
        if into is not None:
            copy_out(backend.stream, target, at_out)

    return launch


def _padding(backend: Any, at: int, of: Matrices, to: Matrices) -> Callable[[Values, list[Value]], int]:
    """The address of a factor, or of a padded copy of it that is kept until the launch is done."""
    if to is of:
        return lambda args, kept: _start(args[at], of)
    memory, copy = gemm_padding.memory_of(to, backend), gemm_padding.copying(of, to)

    def address(args: Values, kept: list[Value]) -> int:
        kept.append(backend.empty(memory))
        copied: int = kept[-1].storage.block.pointer
        copy(backend.stream, copied, _start(args[at], of))
        return copied

    return address
