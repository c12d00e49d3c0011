"""Convolutions as products of their windows, for sizes that are new: no plan has to be asked of cuDNN for them.

To ask for a plan takes a hundred times as long as a launch, and sizes that change from step to step hardly come again.
So a small convolution begins as windows in columns and a product of matrices, and cuDNN is asked when it comes again.
Knows no plans.
"""

from __future__ import annotations

import math
from typing import Any, Final

from server.engine import functional as F
from server.engine.cuda.gemm.gemm import multiplication
from server.engine.cuda.gemm.layout import Matrices, matrices
from server.engine.cuda.gemm.product import Product
from server.engine.value import Backend, Launch, Value
from telegrad_protocol.meta import Meta

from .windows import Slide, folding, unfolding, windows_in

_MOST_BYTES: Final = 32 << 20
"""Columns of more bytes are not worth to be made: a plan is asked for at once."""
_MOST_WORK: Final = 2e9
"""Nor are products of more multiplications and additions: cuDNN's plan saves too much of them."""


def by_columns(backend: Backend, input: Meta, weight: Meta, slide: Slide, out: Meta) -> Launch | None:
    """The launch of a convolution (n, read, h, w), (made, read, kh, kw); None where it is large."""
    columns, by_row = _columns(out, weight, input, slide), _rows_of(weight, out.shape[0])
    if columns is None:
        return None
    unfold = unfolding(backend, input, columns, slide)
    product = multiplication(backend, Product(by_row, matrices(columns), _lines(out)))
    if unfold is None or product is None:
        return None

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        windows = backend.empty(columns)
        unfold(args[:1], (windows,))
        product((args[1], windows), outs)

    return launch


def transposed_by_columns(backend: Backend, input: Meta, weight: Meta, slide: Slide, out: Meta) -> Launch | None:
    """The launch of a transposed convolution (n, made, h, w), (made, read, kh, kw); None where it is large."""
    columns, by_row = _columns(input, weight, out, slide), _rows_of(weight, out.shape[0])
    if columns is None:
        return None
    product = multiplication(backend, Product(by_row.T, _lines(input), matrices(columns), left_at=1, right_at=0))
    fold = folding(backend, columns, out, slide)
    if product is None or fold is None:
        return None

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        windows = backend.empty(columns)
        product(args, (windows,))
        fold((windows,), outs)

    return launch


def weight_by_columns(backend: Backend, grad: Meta, input: Meta, slide: Slide, out: Meta) -> Launch | None:
    """The launch of the weight's gradient, of those (n, made, h, w) and (n, read, h, w); None where it is large."""
    columns, count = _columns(grad, out, input, slide), grad.shape[0]
    if columns is None:
        return None
    parts = out.like((count, *out.shape))  # a gradient of each picture, which are added up
    unfold = unfolding(backend, input, columns, slide)
    product = multiplication(backend, Product(_lines(grad), matrices(columns).T, _lines(parts, out.shape[0])))
    if unfold is None or product is None:
        return None

    def launch(args: tuple[Any, ...], outs: tuple[Value, ...]) -> None:
        windows, made = backend.empty(columns), backend.empty(parts)
        unfold(args[1:2], (windows,))
        product((args[0], windows), (made,))
        F.copy_(outs[0].alias(), F.sum(made, 0))

    return launch


def _columns(positions: Meta, weight: Meta, picture: Meta, slide: Slide) -> Meta | None:
    """The windows of a picture as columns, one per position; None where they, or what is done with them, are large."""
    count, made = positions.shape[:2]
    meta = positions.like((count, weight.numel // made, math.prod(positions.shape[2:])))
    is_large = meta.nbytes > _MOST_BYTES or 2.0 * meta.numel * made > _MOST_WORK
    return None if is_large or windows_in(picture.shape[2:], slide) != tuple(positions.shape[2:]) else meta


def _lines(meta: Meta, rows: int | None = None) -> Matrices:
    """Row-major pictures as matrices with a row for each channel, or weights of each picture with so many rows."""
    rows = rows or meta.shape[1]
    columns = meta.numel // (meta.shape[0] * rows)
    return Matrices(meta.dtype, meta.shape[0], rows, columns, rows * columns, columns, 1, meta.offset)


def _rows_of(weight: Meta, batch: int) -> Matrices:
    """A row-major weight, the same for each of a batch, as matrices with a row for each of its first dimension."""
    rows, columns = weight.shape[0], weight.numel // weight.shape[0]
    return Matrices(weight.dtype, batch, rows, columns, 0, columns, 1, weight.offset)
