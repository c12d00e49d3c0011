"""cuBLASLt through nvmath's bindings: a product is described once, its algorithm chosen once, then it is only run.

All is column-major, as BLAS has it. Products share what describes them: most of a new one was described before. Knows
nothing of operations, values or sessions; without the bindings, or the library, ``is_available`` says no and nothing
else may be called.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from server.library_choices import library_choices
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

try:
    from nvmath.bindings import cublasLt as lt
except ImportError:
    lt = None

_KEPT_LAYOUTS = 1 << 12
_KEPT_OPERATIONS = 1 << 8
"""So many descriptors are kept for products that are yet to come; those that come have others."""
WORKSPACE_BYTES = 32 << 20
"""The workspace that an algorithm may use, in bytes: the size that NVIDIA recommends for Hopper."""

DATA_TYPES: dict[DType, int] = {
    dtypes.float16: 2, dtypes.bfloat16: 14, dtypes.float32: 0, dtypes.float64: 1, dtypes.complex64: 4,
    dtypes.complex128: 5,
}  # fmt: skip
"""``cudaDataType`` of each type that cuBLASLt multiplies."""
COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_FAST_TF32 = 68, 70, 77
PLAIN, RELU, BIAS, RELU_BIAS, GELU, GELU_BIAS, BIAS_GRADIENT_B = 1, 2, 4, 6, 32, 36, 512
ANY_REDUCTION, EXACT_REDUCTION = 7, 2
"""Split-K partial sums may be added in the result's dtype, or only in the compute type."""


class Side(NamedTuple):
    """A batch of matrices in memory, column-major; ``alignment`` is what the first address is a multiple of."""

    dtype: DType
    rows: int
    columns: int
    leading: int
    step: int = 0
    alignment: int = 256


class Problem(NamedTuple):
    """D = alpha * op(A) @ op(B) + beta * C, then the epilogue; C has the shape of D."""

    a: Side
    b: Side
    c: Side
    d: Side
    transposes_a: bool
    transposes_b: bool
    batch: int
    compute: int
    epilogue: int = PLAIN
    reductions: int = ANY_REDUCTION
    alpha: complex = 1.0
    beta: complex = 0.0
    bias_alignment: int = 256


class Algorithm(NamedTuple):
    """One way to compute a product; ``opaque`` is cuBLASLt's own description of it."""

    opaque: Any
    workspace: int
    address: int
    """Where the description lies."""

    @classmethod
    def of(cls, opaque: Any, workspace: int) -> Algorithm:
        """An algorithm whose description is an array."""
        return cls(opaque, workspace, opaque.ctypes.data)


class Call(NamedTuple):
    """What stays the same from run to run: ``matmul``, whose arguments these are in between others, and descriptors.

    It takes the handle, the operation, alpha, then address and layout of A and of B, beta, those of C and of D, the
    algorithm, address and size of the workspace, and the stream. ``kept`` is what all this lives in.
    """

    matmul: Callable[..., None]
    handle: int
    operation: int
    alpha: int
    beta: int
    a: int
    b: int
    c: int
    d: int
    opaque: int
    workspace: int
    kept: Any


@functools.cache
def is_available() -> bool:
    """Whether products can be described: the bindings are installed and find the library."""
    if lt is None:
        return False
    try:
        return bool(lt.get_version())
    except Exception:  # whatever kept the library from loading, CuPy does the work then
        return False


@functools.cache
def version() -> str:
    """The library's version."""
    return str(lt.get_version())


@functools.cache
def _handle(device: int) -> int:
    return int(lt.create())


class _Descriptor:
    """What cuBLASLt holds until this is gone; of an operation also the bias that was set last."""

    __slots__ = ("_bias", "_destroy", "number")

    def __init__(self, number: int, destroy: Callable[[int], None]) -> None:
        self.number, self._destroy, self._bias = number, destroy, 0

    def set_bias(self, pointer: int) -> None:
        """Set the address from which the epilogue reads the bias, or to which it writes the bias's gradient."""
        if pointer != self._bias:
            self._bias = pointer
            _set(lt.matmul_desc_set_attribute, self.number, _OPERATION.BIAS_POINTER, ctypes.c_int64, pointer)

    def __del__(self) -> None:
        self._destroy(self.number)


@functools.lru_cache(_KEPT_OPERATIONS)
def _operation(compute: int, scale: int, transposes_a: bool, transposes_b: bool, epilogue: int) -> _Descriptor:
    """What cuBLASLt calls an operation: types, transposes and epilogue."""
    operation = _Descriptor(int(lt.matmul_desc_create(compute, scale)), lt.matmul_desc_destroy)
    for attribute, kind, number in (
        (_OPERATION.TRANSA, ctypes.c_int32, transposes_a),
        (_OPERATION.TRANSB, ctypes.c_int32, transposes_b),
        (_OPERATION.EPILOGUE, ctypes.c_uint32, epilogue),
    ):
        _set(lt.matmul_desc_set_attribute, operation.number, attribute, kind, number)
    return operation


@functools.lru_cache(_KEPT_LAYOUTS)
def _layout(kind: int, rows: int, columns: int, leading: int, step: int, batch: int) -> _Descriptor:
    """What cuBLASLt calls a layout: how a batch of matrices lies."""
    layout = _Descriptor(int(lt.matrix_layout_create(kind, rows, columns, leading)), lt.matrix_layout_destroy)
    if batch > 1:
        _set(lt.matrix_layout_set_attribute, layout.number, _LAYOUT.BATCH_COUNT, ctypes.c_int32, batch)
        _set(lt.matrix_layout_set_attribute, layout.number, _LAYOUT.STRIDED_BATCH_OFFSET, ctypes.c_int64, step)
    return layout


def _layout_of(side: Side, batch: int) -> _Descriptor:
    kind = DATA_TYPES[side.dtype]
    return _layout(kind, side.rows, side.columns, side.leading, side.step if batch > 1 else 0, batch)


@functools.lru_cache(_KEPT_OPERATIONS)
def _factors(shown: str, alpha: complex, beta: complex, dtype: DType) -> tuple[Any, int, int]:
    """Alpha and beta as products of a type take them, and their addresses; ``shown`` tells 0.0 and -0.0 apart."""
    factors = np.array([alpha, beta]).astype(_SCALES[dtype])
    return factors, factors.ctypes.data, factors.ctypes.data + factors.itemsize


@functools.cache
def _checks() -> tuple[Any, Any, int]:
    """Where cuBLASLt writes what it says of an algorithm: its state, the size of its workspace, and where both lie."""
    result = np.zeros(1, lt.matmul_heuristic_result_dtype)
    return result["state"], result["workspace_size"], result.ctypes.data


class Product:
    """A problem as cuBLASLt holds it. Its descriptors live as long as this does, and may be those of other products.

    Another thread than the worker's has an operation of its own: that which is shared is told of each launch's bias.
    """

    __slots__ = ("_factors", "_handle", "_kept", "_layouts", "_operation", "_problem", "set_bias")

    def __init__(self, device: int, problem: Problem, shares: bool = True) -> None:
        self._handle = _handle(device)
        scale = DATA_TYPES[BY_SCALE[problem.d.dtype]]
        describe = _operation if shares else _operation.__wrapped__
        operation = describe(problem.compute, scale, problem.transposes_a, problem.transposes_b, problem.epilogue)
        batch, result = problem.batch, _layout_of(problem.d, problem.batch)
        a, b = _layout_of(problem.a, batch), _layout_of(problem.b, batch)
        c = result if problem.c is problem.d else _layout_of(problem.c, batch)
        self._operation, self._layouts = operation.number, (a.number, b.number, c.number, result.number)
        self._kept = operation, a, b, c, result
        self._problem = problem
        self._factors = _factors(repr((problem.alpha, problem.beta)), problem.alpha, problem.beta, problem.d.dtype)
        self.set_bias = operation.set_bias
        if problem.epilogue != PLAIN:
            operation.set_bias(problem.bias_alignment)  # the choice of algorithms depends on how it is aligned

    def algorithms(self, count: int) -> list[Algorithm]:
        """The algorithms that cuBLASLt's heuristic proposes, best first; none if it cannot compute the product."""
        results = np.zeros(count, lt.matmul_heuristic_result_dtype)
        returned = np.zeros(1, np.int32)
        library_choices.asked += 1
        try:
            with self._preferred(self._problem) as preference:
                lt.matmul_algo_get_heuristic(
                    self._handle, self._operation, *self._layouts, preference, count, results.ctypes.data,
                    returned.ctypes.data,
                )  # fmt: skip
        except lt.cuBLASLtError:
            return []
        usable = [result for result in results[: returned[0]] if result["state"] == 0]
        return [Algorithm.of(np.array(result["algo"]), int(result["workspace_size"])) for result in usable]

    def checked(self, algorithm: Algorithm) -> Algorithm | None:
        """An algorithm that was proposed for another product, for this one; None where it cannot compute it."""
        states, sizes, address = _checks()
        try:
            lt.matmul_algo_check(self._handle, self._operation, *self._layouts, algorithm.address, address)
        except lt.cuBLASLtError:
            return None
        workspace = int(sizes[0])
        if states[0] != 0 or workspace > WORKSPACE_BYTES:
            return None
        library_choices.borrowed += 1
        return algorithm if workspace == algorithm.workspace else algorithm._replace(workspace=workspace)

    def call(self, algorithm: Algorithm) -> Call:
        """The arguments of ``matmul`` for an algorithm, without addresses and stream."""
        _, alpha, beta = self._factors
        a, b, c, d = self._layouts
        return Call(
            lt.matmul, self._handle, self._operation, alpha, beta, a, b, c, d, algorithm.address, algorithm.workspace,
            (self, algorithm),
        )  # fmt: skip

    @contextmanager
    def _preferred(self, problem: Problem) -> Iterator[int]:
        """A description of what algorithms may need, which exists within the block."""
        preference = int(lt.matmul_preference_create())
        put = functools.partial(_set, lt.matmul_preference_set_attribute, preference)
        try:
            put(_PREFERENCE.MAX_WORKSPACE_BYTES, ctypes.c_uint64, WORKSPACE_BYTES)
            put(_PREFERENCE.REDUCTION_SCHEME_MASK, ctypes.c_uint32, problem.reductions)
            for name, side in zip("ABCD", (problem.a, problem.b, problem.c, problem.d), strict=True):
                put(getattr(_PREFERENCE, f"MIN_ALIGNMENT_{name}_BYTES"), ctypes.c_uint32, side.alignment)
            yield preference
        finally:
            lt.matmul_preference_destroy(preference)


def _set(setter: Any, descriptor: int, attribute: int, kind: Any, number: int) -> None:
    buffer = kind(number)
    setter(descriptor, attribute, ctypes.addressof(buffer), ctypes.sizeof(buffer))


BY_SCALE: dict[DType, DType] = {
    dtypes.float16: dtypes.float32, dtypes.bfloat16: dtypes.float32, dtypes.float32: dtypes.float32,
    dtypes.float64: dtypes.float64, dtypes.complex64: dtypes.complex64, dtypes.complex128: dtypes.complex128,
}  # fmt: skip
"""The type of alpha and beta by the type of the matrices."""
_SCALES: dict[DType, Any] = {dtype: np.dtype(scale.name) for dtype, scale in BY_SCALE.items()}

_OPERATION: Any = getattr(lt, "MatmulDescAttribute", None)
_LAYOUT: Any = getattr(lt, "MatrixLayoutAttribute", None)
_PREFERENCE: Any = getattr(lt, "MatmulPreferenceAttribute", None)
