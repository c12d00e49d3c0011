"""What a matrix product is: its matrices, which arguments they are, what is added; and the same in cuBLASLt's words."""

from __future__ import annotations

from typing import Any, NamedTuple

from server.engine.switches import Switches
from telegrad_protocol import dtypes

from . import cublaslt
from .cublaslt import Problem
from .layout import Matrices, alignment, side

_BIASED = {cublaslt.PLAIN: cublaslt.BIAS, cublaslt.RELU: cublaslt.RELU_BIAS, cublaslt.GELU: cublaslt.GELU_BIAS}


class Product(NamedTuple):
    """alpha * left @ right + beta * added, then an activation; ``*_at`` number arguments and results.

    ``bias_gradient_at``: the result that receives the sum over the rows of ``left``'s transpose. ``added`` has the
    result's shape, with strides of 0 where it is broadcast. ``may_alias``: the result may lie where a factor lies.
    """

    left: Matrices
    right: Matrices
    out: Matrices
    left_at: int = 0
    right_at: int = 1
    out_at: int = 0
    added: Matrices | None = None
    added_at: int = 0
    alpha: Any = 1
    beta: Any = 0
    activation: int = cublaslt.PLAIN
    bias_gradient_at: int | None = None
    may_alias: bool = False

    @property
    def is_swapped(self) -> bool:
        """Whether the result is column-major: then its transpose is computed, from the factors' transposes."""
        return not self.out.is_by_rows

    @property
    def adds_bias(self) -> bool:
        """Whether what is added is one row for all rows, so that an epilogue adds it."""
        added = self.added
        return (
            added is not None and self.beta == 1 and self.out.rows > 1 and self.out.batch == 1 and not self.is_swapped
            and added.row_step == 0 and (added.column_step == 1 or added.columns == 1)
            and self.out.dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float32)
        )  # fmt: skip

    @property
    def adds_matrix(self) -> bool:
        """Whether BLAS takes what is added as it lies."""
        added = self.added
        if added is None or (added.batch > 1 and added.step == 0):
            return False
        return added.T.is_by_rows if self.is_swapped else added.is_by_rows

    @property
    def is_empty(self) -> bool:
        """Whether nothing is summed."""
        return not self.left.columns


def compute_type(product: Product, switches: Switches) -> int:
    """The ``cublasComputeType_t`` that the switches ask for."""
    dtype = product.out.dtype
    if dtype in (dtypes.float64, dtypes.complex128):
        return cublaslt.COMPUTE_64F
    halves = dtype in (dtypes.float16, dtypes.bfloat16)
    return cublaslt.COMPUTE_32F_FAST_TF32 if switches.allow_tf32 and not halves else cublaslt.COMPUTE_32F


def _reductions(product: Product, switches: Switches) -> int:
    dtype, allowed = product.out.dtype, True
    if dtype is dtypes.float16:
        allowed = switches.allow_fp16_reduced_precision_reduction
    elif dtype is dtypes.bfloat16:
        allowed = switches.allow_bf16_reduced_precision_reduction
    return cublaslt.ANY_REDUCTION if allowed else cublaslt.EXACT_REDUCTION


def problem(product: Product, switches: Switches, filled: bool) -> Problem:
    """A product as cuBLASLt takes it: D' = B' A', since row-major matrices are transposed column-major ones."""
    left, right, out = product.left, product.right, product.out
    if product.is_swapped:
        left, right, out = right.T, left.T, out.T
    (a, transposes_a), (b, transposes_b), (d, _) = side(right), side(left), side(out)
    c, epilogue, bias_alignment, beta = d, product.activation, 256, 0
    if product.added is not None:
        beta = product.beta
        if not filled and product.adds_bias:
            epilogue, beta, bias_alignment = _BIASED[epilogue], 0, alignment(product.added)
        elif not filled:
            c = side(product.added.T if product.is_swapped else product.added)[0]
    if product.bias_gradient_at is not None:
        epilogue = cublaslt.BIAS_GRADIENT_B
    return Problem(
        a, b, c, d, transposes_a, transposes_b, product.out.batch, compute_type(product, switches), epilogue,
        _reductions(product, switches), product.alpha, beta, bias_alignment,
    )  # fmt: skip
