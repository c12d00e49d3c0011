"""What matrix products wait for when a process first needs it, done before: cuBLASLt's own tables and its kernels.

The library loads tables for a tenth of a second when it is first asked about a type, and each of its kernels when that
is first launched. This runs beside the worker's thread, which may need the same at any moment. Without the library
there is nothing to do.
"""

from __future__ import annotations

from typing import Any, Final

from server.engine.device.cupy_module import cp
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

from .gemm import cublaslt, neighbours, used_products
from .gemm.cublaslt import COMPUTE_32F, Problem, Product, Side

TYPES: Final = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
"""The types that networks have, those that most have first."""
_SIZE: Final = 64
_SCRATCH_BYTES: Final = 32 << 20
"""Products of matrices that have more bytes are not computed beforehand; cuBLASLt's workspace has as many."""


def ask_about(device: int, dtype: DType) -> None:
    """Have cuBLASLt load what it needs to propose algorithms for a type."""
    if not cublaslt.is_available():
        return
    side = Side(dtype, _SIZE, _SIZE, _SIZE)
    Product(device, Problem(side, side, side, side, False, False, 1, COMPUTE_32F), shares=False).algorithms(1)


def compute_last(device: int) -> None:
    """Compute on scratch memory what the last processes asked about, and know its algorithms.

    All matrices lie in the same memory, whose values nobody wants.
    """
    if not cublaslt.is_available():
        return
    scratch, stream = cp.cuda.Memory(_SCRATCH_BYTES + cublaslt.WORKSPACE_BYTES), cp.cuda.Stream(non_blocking=True)
    for problem, algorithm in used_products.last(device):
        product = Product(device, problem, shares=False)
        checked = product.checked(algorithm)
        if checked is None:
            continue
        if max([_bytes(side, problem.batch) for side in problem[:4]]) <= _SCRATCH_BYTES:
            _compute(product, checked, problem, scratch.ptr, stream)
        neighbours.remember(device, problem, checked)
    stream.synchronize()


def _compute(product: Product, algorithm: cublaslt.Algorithm, problem: Problem, at: int, stream: Any) -> None:
    if problem.epilogue != cublaslt.PLAIN:
        product.set_bias(at)
    matmul, handle, operation, alpha, beta, a, b, c, d, opaque, size, _ = product.call(algorithm)
    workspace = at + _SCRATCH_BYTES
    matmul(handle, operation, alpha, at, a, at, b, beta, at, c, at, d, opaque, workspace, size, stream.ptr)


def _bytes(side: Side, batch: int) -> int:
    return ((batch - 1) * side.step + side.leading * side.columns) * side.dtype.itemsize
