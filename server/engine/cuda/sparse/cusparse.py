"""cuSPARSE through nvmath's bindings: a product is described once for its sizes, and then only given addresses.

Knows nothing of operations, values or sessions. Without the bindings ``IS_AVAILABLE`` says so, and nothing else may be
called.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from server.engine.device.cupy_module import cp
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

try:
    from nvmath.bindings import cusparse
except ImportError:
    cusparse = None

IS_AVAILABLE = cusparse is not None
DATA_TYPES: dict[DType, int] = {
    dtypes.float16: 2, dtypes.bfloat16: 14, dtypes.float32: 0, dtypes.float64: 1, dtypes.complex64: 4,
    dtypes.complex128: 5,
}  # fmt: skip
"""``cudaDataType`` of each type that cuSPARSE multiplies."""
_SCALES = {2: "f4", 14: "f4", 0: "f4", 1: "f8", 4: "c8", 5: "c16"}
_COMPUTE = {2: 0, 14: 0}
"""Halves are multiplied in single precision; other types in themselves."""
_KEPT_SCRATCH = 32 << 20
"""Scratch memory up to so many bytes is the stream's own; more is allocated for the call."""


class Sizes(NamedTuple):
    """A product of a sparse matrix, or of its transpose, with a row-major dense one.

    ``rows`` and ``columns`` are those of the sparse matrix as it is stored.
    """

    dtype: DType
    indices: DType
    rows: int
    columns: int
    stored: int
    width: int
    is_transposed: bool


class Addresses(NamedTuple):
    """Where the operands and the result lie."""

    crow: int
    col: int
    values: int
    other: int
    out: int


@functools.cache
def _handle(device: int) -> int:
    return int(cusparse.create())


class Product:
    """A product as cuSPARSE holds it, on one device. Its descriptors live as long as this does."""

    def __init__(self, backend: Any, sizes: Sizes) -> None:
        self._backend = backend
        self._sizes = sizes
        self._descriptors: list[tuple[Any, int]] = []
        self._at: Addresses | None = None
        self._handle = _handle(backend.index) if IS_AVAILABLE else 0
        self._scratch_bytes = 0
        kind = DATA_TYPES[sizes.dtype]
        self._kind, self._compute = kind, _COMPUTE.get(kind, kind)
        self._factors = np.array([1, 0], _SCALES[kind])

    def run(self, at: Addresses) -> None:
        """Multiply what lies at the addresses, on the backend's current stream."""
        before = self._at
        if before is None:
            self._describe(at)
        elif before != at:
            if before[:3] != at[:3]:
                cusparse.csr_set_pointers(self._sparse, at.crow, at.col, at.values)
            if before.other != at.other:
                cusparse.dn_mat_set_values(self._other, at.other)
            if before.out != at.out:
                cusparse.dn_mat_set_values(self._out, at.out)
            self._at = at
        backend, handle = self._backend, self._handle
        cusparse.set_stream(handle, backend.stream)
        scratch, address = None, 0
        if self._scratch_bytes > _KEPT_SCRATCH:
            scratch = cp.empty(self._scratch_bytes, "b")
            address = scratch.data.ptr
        elif self._scratch_bytes:
            address = backend.workspace(self._scratch_bytes).pointer
        cusparse.sp_mm(handle, *self._arguments, address)

    def _describe(self, at: Addresses) -> None:
        sizes, kind = self._sizes, self._kind
        index = cusparse.IndexType.INDEX_64I if sizes.indices is dtypes.int64 else cusparse.IndexType.INDEX_32I
        self._sparse = int(cusparse.create_csr(
            sizes.rows, sizes.columns, sizes.stored, at.crow, at.col, at.values, index, index,
            cusparse.IndexBase.ZERO, kind,
        ))  # fmt: skip
        self._descriptors.append((cusparse.destroy_sp_mat, self._sparse))
        given, made = (sizes.rows, sizes.columns) if sizes.is_transposed else (sizes.columns, sizes.rows)
        self._other, self._out = self._dense(given, at.other), self._dense(made, at.out)
        self._choose()
        self._at = at

    def _dense(self, rows: int, address: int) -> int:
        width = self._sizes.width
        matrix = int(cusparse.create_dn_mat(rows, width, width, address, self._kind, cusparse.Order.ROW))
        self._descriptors.append((cusparse.destroy_dn_mat, matrix))
        return matrix

    def _choose(self) -> None:
        """Take the first algorithm that supports the product; the one for row-major operands is the fastest."""
        operations = cusparse.Operation
        turned = operations.TRANSPOSE if self._sizes.is_transposed else operations.NON_TRANSPOSE
        alpha = self._factors.ctypes.data
        handle = self._handle
        for algorithm in (cusparse.SpMMAlg.CSR_ALG2, cusparse.SpMMAlg.DEFAULT):
            self._arguments = (
                turned, operations.NON_TRANSPOSE, alpha, self._sparse, self._other, alpha + self._factors.itemsize,
                self._out, self._compute, algorithm,
            )  # fmt: skip
            try:
                self._scratch_bytes = int(cusparse.sp_mm_buffer_size(handle, *self._arguments))
                return
            except cusparse.cuSPARSEError:
                if algorithm is cusparse.SpMMAlg.DEFAULT:
                    raise

    def __del__(self) -> None:
        for destroy, descriptor in self._descriptors:
            destroy(descriptor)
