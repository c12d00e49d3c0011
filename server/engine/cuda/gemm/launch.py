"""Launches of matrix products: on operands as they lie, or on copies that BLAS can take, or takes faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from server.engine.device.cupy_module import cp
from server.engine.value import Launch, Value
from telegrad_protocol.errors import OutOfMemoryError
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

    run: Run
    fills: bool = False
    straight: Launch | None = None


def firing(backend: Any, described: cublaslt.Product, call: cublaslt.Call, is_biased: bool) -> Fire:
    """A call of cuBLASLt, which waits where launches do."""
    matmul, handle, operation, alpha, beta, a, b, c, d, opaque, size, _ = call

    def perform(
        stream: int, first: int, second: int, added: int, out: int, workspace: int, bias: int = 0,
        _kept: cublaslt.Call = call,
    ) -> None:  # fmt: skip
        if is_biased:
            described.set_bias(bias)
        matmul(handle, operation, alpha, first, a, second, b, beta, added, c, out, d, opaque, workspace, size, stream)

    return partial(backend.launches.launch, perform)


def straight(backend: Any, product: Product, fire: Fire, size: int) -> Launch:
    """A launch by cuBLASLt of a product that adds nothing, on operands as they lie: small ones cost mostly this."""
    factors = ((product.right, product.right_at), (product.left, product.left_at))
    (first, first_at), (second, second_at) = reversed(factors) if product.is_swapped else factors
    at_first, at_second, at_out = (m.offset * m.dtype.itemsize for m in (first, second, product.out))
    out_at = product.out_at

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        out = outs[out_at].storage.block.pointer + at_out
        fire(
            backend.stream, args[first_at].storage.block.pointer + at_first,
            args[second_at].storage.block.pointer + at_second, out, out,
            backend.workspace(cublaslt.WORKSPACE_BYTES).pointer if size else 0,
        )  # fmt: skip

    return launch


def direct(backend: Any, product: Product, core: Run) -> Launch:
    """A launch on operands as they lie."""
    left_at, right_at, out_at, added_at, gradient_at = (
        product.left_at, product.right_at, product.out_at, product.added_at, product.bias_gradient_at
    )  # fmt: skip
    left, right, out = (m.offset * m.dtype.itemsize for m in (product.left, product.right, product.out))
    if product.added is None and gradient_at is None:

        def plain(args: Values, outs: tuple[Value, ...]) -> None:
            core(
                backend.stream, args[left_at].storage.block.pointer + left,
                args[right_at].storage.block.pointer + right, 0, outs[out_at].storage.block.pointer + out, 0,
            )  # fmt: skip

        return plain
    offset = 0 if product.added is None else product.added.offset * product.out.dtype.itemsize

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        beside = outs[gradient_at] if gradient_at is not None else args[added_at]
        third = beside.storage.block.pointer + offset
        core(
            backend.stream, args[left_at].storage.block.pointer + left, args[right_at].storage.block.pointer + right,
            third, outs[out_at].storage.block.pointer + out, third,
        )  # fmt: skip

    return launch


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

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        backend.flush()
        target = outs[product.out_at]
        kept: list[Any] = []
        left = _address(args[product.left_at], product.left, kept)
        right = _address(args[product.right_at], product.right, kept)
        aliases = product.may_alias and any(
            [args[p].storage is target.storage for p in (product.left_at, product.right_at)]
        )
        direct = product.out.is_blas and not aliases
        into = target if direct else backend.empty(_like(target, out))
        added = 0 if product.added is None else _start(args[added_at], product.added)
        if fills:
            backend.store(into.array.reshape(target.shape), args[added_at].array)
        beside = added if product.bias_gradient_at is None else _start(outs[product.bias_gradient_at], None)
        core(backend.stream, left, right, added, _start(into, product.out if direct else None), beside)
        if not direct:
            backend.store(target.array, into.array.reshape(target.shape))

    return launch


def _like(target: Value, out: Matrices) -> Meta:
    """A row-major tensor, or one whose matrices are column-major as the target's are."""
    strides = (out.step, out.row_step, out.column_step) if out.batch > 1 else (out.row_step, out.column_step)
    shape = (out.batch, out.rows, out.columns) if out.batch > 1 else (out.rows, out.columns)
    return Meta.of(shape, out.dtype, target.device, strides)


def _start(value: Value, of: Matrices | None) -> int:
    offset = value.meta.offset if of is None else of.offset
    return value.storage.block.pointer + offset * value.meta.dtype.itemsize


def _address(value: Value, of: Matrices, kept: list[Any]) -> int:
    """Where a factor lies; or a copy that is kept until the launch is done."""
    if of.is_blas:
        return _start(value, of)
    kept.append(cp.ascontiguousarray(value.array))
    return int(kept[-1].data.ptr)


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
