"""Matrix products by cuBLAS itself: what ``preferred_blas_library`` can ask for, and tuning may choose."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import cublaslt
from .layout import side

try:
    from nvmath.bindings import cublas
except ImportError:
    cublas = None

if TYPE_CHECKING:
    from .product import Product

_DEFAULT_ALGORITHM = -1


@functools.cache
def _handle(device: int) -> int:
    return int(cublas.create())


def core(backend: Any, product: Product, compute: int) -> Callable[..., None] | None:
    """What runs a product without epilogue, adding to what the result holds; None where there is one."""
    if cublas is None or product.activation != cublaslt.PLAIN or product.bias_gradient_at is not None:
        return None
    left, right, out = product.left, product.right, product.out
    if product.is_swapped:
        left, right, out = right.T, left.T, out.T
    (a, transposes_a), (b, transposes_b), (d, _) = side(right), side(left), side(out)
    scale = np.dtype(cublaslt.BY_SCALE[out.dtype].name)
    factors = np.array([product.alpha, product.beta if product.added else 0]).astype(scale)
    alpha, kind = factors.ctypes.data, cublaslt.DATA_TYPES[out.dtype]
    handle, is_swapped = _handle(backend.index), product.is_swapped
    columns, rows, terms = out.columns, out.rows, left.columns

    def run(stream: int, at_left: int, at_right: int, added: int, at_out: int, bias: int, _keep: Any = factors) -> None:
        backend.flush()
        cublas.set_stream(handle, stream)
        cublas.set_workspace(
            handle, backend.workspace(cublaslt.WORKSPACE_BYTES).pointer, cublaslt.WORKSPACE_BYTES
        )  # setting the stream made it forget the one it had
        if is_swapped:
            at_left, at_right = at_right, at_left
        cublas.gemm_strided_batched_ex(
            handle, int(transposes_a), int(transposes_b), columns, rows, terms, alpha, at_right, kind, a.leading,
            a.step, at_left, kind, b.leading, b.step, alpha + factors.itemsize, at_out, kind, d.leading, d.step,
            out.batch, compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    return run
