"""Matrix products on a GPU: described once per plan and choice of switches, then run.

``multiplication`` makes a launch of one ``Product``. cuBLASLt computes it, our own tiles what it does not take, or
whichever of them and cuBLAS was measured to be the fastest. Knows nothing of particular operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cupy as cp

from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from .. import context
from ..operators import Launch
from ..switches import Switches
from ..value import Value
from . import cublaslt, gemm_cublas, gemm_tiles
from .cublaslt import Problem
from .gemm_layout import Matrices, alignment, side

Values = tuple[Any, ...]
Core = Callable[[int, int, int, int, int, int], None]
"""Runs on a stream, given the addresses of left, right, what is added, the result, and a bias or its gradient."""
_KEPT_VARIANTS = 8
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


def multiplication(backend: Any, product: Product) -> Launch | None:
    """What runs a product under whatever switches hold at the time; None where nothing here can."""
    if not product.out.batch * product.out.rows * product.out.columns:
        return _nothing
    if product.beta == 0:
        product = product._replace(added=None)
    first = variant(backend, product, context.current.switches, None)
    if first is None:
        return None
    variants: dict[Switches, Launch] = {}

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        switches = context.current.switches
        run = variants.get(switches)
        if run is None:
            if len(variants) >= _KEPT_VARIANTS:
                variants.clear()
            run = variants[switches] = _chosen(backend, product, switches, args, outs) or first
        run(args, outs)

    if context.current.switches.tuner is None:
        variants[context.current.switches] = first
    return launch


def _nothing(args: Values, outs: tuple[Value, ...]) -> None:
    """There is no element to compute."""


def _chosen(backend: Any, product: Product, switches: Switches, args: Values, outs: tuple[Value, ...]) -> Launch | None:
    if switches.tuner is None:
        return variant(backend, product, switches, None)
    from .tunable import tuned

    return tuned(backend, product, switches, args, outs)


def variant(backend: Any, product: Product, switches: Switches, solution: str | None) -> Launch | None:
    """A launch by one way to compute a product: the named one, or what the switches and the library prefer."""
    copies = not (product.left.is_blas and product.right.is_blas and product.out.is_blas)
    packed = _packed(product) if copies else product
    filled = packed.added is not None and not (packed.adds_bias or packed.adds_matrix)
    found = _core(backend, packed, switches, solution, filled)
    if found is None and packed.adds_bias and packed.activation == cublaslt.PLAIN:
        filled = True
        found = _core(backend, packed, switches, solution, filled)
    if found is None:
        return None
    core, needs_filling = found
    careful = _careful(backend, product, packed, core, needs_filling)
    if copies or needs_filling:
        return careful
    direct = _direct(backend, product, core)
    return _guarded(product, direct, careful) if product.may_alias else direct


def _packed(product: Product) -> Product:
    """The product of row-major copies of what BLAS cannot take."""
    left, right, out = (m if m.is_blas else m.compact for m in (product.left, product.right, product.out))
    return product._replace(left=left, right=right, out=out)


def _core(
    backend: Any, product: Product, switches: Switches, solution: str | None, filled: bool
) -> tuple[Core, bool] | None:
    """A core, and whether what is added must be in the result before it runs."""
    chosen = solution or _preferred(product, switches)
    if not chosen:
        return None
    if chosen == "own":
        found = _own(product)
        return None if found is None else (found, False)
    if chosen == "cublas":
        core = gemm_cublas.core(backend, product, _compute(product, switches))
        if core is not None:
            return core, product.added is not None
    rank = int(chosen.rpartition("_")[2]) if chosen.startswith("cublaslt_") else 0
    core = _by_cublaslt(backend, product, switches, filled, rank)
    if core is not None:
        return core, filled
    if solution is not None:
        return None
    found = _own(product)
    return None if found is None else (found, False)


def _preferred(product: Product, switches: Switches) -> str:
    """The way that the switches ask for; empty where no library is there, so that CuPy has to do it."""
    library = switches.preferred_blas_library
    if product.out.dtype not in cublaslt.DATA_TYPES or product.is_empty or library == "own":
        return "own"
    if not cublaslt.is_available():
        return ""
    return "cublas" if library == "cublas" else "cublaslt"


def _own(product: Product) -> Core | None:
    if not gemm_tiles.takes(product.out.dtype) or product.activation != cublaslt.PLAIN:
        return None
    if product.bias_gradient_at is not None:
        return None
    added = product.added or product.out
    fire = gemm_tiles.tiles(
        product.left, product.right, added, product.out, product.alpha, product.beta if product.added else 0
    )

    def run(stream: int, left: int, right: int, at_added: int, out: int, bias: int) -> None:
        fire(stream, out, left, right, at_added)

    return run


def _compute(product: Product, switches: Switches) -> int:
    dtype = product.out.dtype
    if dtype in (dtypes.float64, dtypes.complex128):
        return cublaslt.COMPUTE_64F
    halves = dtype in (dtypes.float16, dtypes.bfloat16)
    return cublaslt.COMPUTE_32F_FAST_TF32 if switches.allow_tf32 and not halves else cublaslt.COMPUTE_32F


def _reductions(product: Product, switches: Switches) -> int:
    allowed = {
        dtypes.float16: switches.allow_fp16_reduced_precision_reduction,
        dtypes.bfloat16: switches.allow_bf16_reduced_precision_reduction,
    }
    return cublaslt.ANY_REDUCTION if allowed.get(product.out.dtype, True) else cublaslt.EXACT_REDUCTION


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
        a, b, c, d, transposes_a, transposes_b, product.out.batch, _compute(product, switches), epilogue,
        _reductions(product, switches), product.alpha, beta, bias_alignment,
    )  # fmt: skip


def _by_cublaslt(backend: Any, product: Product, switches: Switches, filled: bool, rank: int) -> Core | None:
    described = problem(product, switches, filled)
    operation = cublaslt.Product(backend.index, described)
    algorithms = operation.algorithms(rank + 1)
    if rank >= len(algorithms):
        return None
    chosen = algorithms[rank]
    matmul = operation.prepare(chosen)
    is_swapped, needs_workspace = product.is_swapped, chosen.workspace > 0
    set_bias = operation.set_bias if described.epilogue not in (cublaslt.PLAIN, cublaslt.RELU, cublaslt.GELU) else None
    adds = product.added is not None and not filled and set_bias is None

    def run(stream: int, left: int, right: int, added: int, out: int, bias: int) -> None:
        if set_bias is not None:
            set_bias(bias)
        workspace = backend.workspace(cublaslt.WORKSPACE_BYTES).pointer if needs_workspace else 0
        if is_swapped:
            left, right = right, left
        matmul(stream, right, left, added if adds else out, out, workspace)

    return run


def _direct(backend: Any, product: Product, core: Core) -> Launch:
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


def _guarded(product: Product, direct: Launch, careful: Launch) -> Launch:
    """A launch that looks whether the result lies where a factor does."""
    left_at, right_at, out_at = product.left_at, product.right_at, product.out_at

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        written = outs[out_at].storage
        if args[left_at].storage is written or args[right_at].storage is written:
            careful(args, outs)
        else:
            direct(args, outs)

    return launch


def _careful(backend: Any, product: Product, packed: Product, core: Core, fills: bool) -> Launch:
    """A launch that copies what BLAS cannot take, and computes elsewhere what would overwrite a factor."""
    out, added_at = packed.out, product.added_at

    def launch(args: Values, outs: tuple[Value, ...]) -> None:
        target, kept = outs[product.out_at], []
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
