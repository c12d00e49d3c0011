"""The solutions of a matrix product: launches that compute it with cuBLASLt, with cuBLAS, or with our own kernel.

``solution_launch`` makes the launch of one ``Product`` under given switches. A solution has a name, as in PyTorch's
TunableOp: ``cublaslt_<rank of the heuristic>``, ``cublas``, ``few_rows`` or ``own``. This module measures no solutions,
remembers no launches, and knows nothing of particular operations.
"""

from __future__ import annotations

from typing import Any

from server.engine.switches import Switches
from server.engine.value import Launch

from . import cublas as gemm_cublas
from . import cublaslt, few_rows
from . import padding as gemm_padding
from . import tiles as gemm_tiles
from .launch import Core, Fire, Run, careful, direct, firing, guarded, padded, straight
from .neighbours import Algorithms
from .product import Product, compute_type, problem

_BIASED = (cublaslt.BIAS, cublaslt.RELU_BIAS, cublaslt.GELU_BIAS, cublaslt.BIAS_GRADIENT_B)
"""Epilogues that read a bias, or leave its gradient."""


def solution_launch(
    backend: Any, product: Product, switches: Switches, solution: str | None, algorithms: Algorithms | None = None
) -> Launch | None:
    """A launch by one way to compute a product: the named one, or what the switches and the library prefer.

    ``algorithms`` finds those of cuBLASLt; without it, each product is asked for.
    """
    algorithms = algorithms or Algorithms(borrows=False)
    copies = not (product.left.is_blas and product.right.is_blas and product.out.is_blas)
    packed = _packed(product) if copies else product
    filled = packed.added is not None and not (packed.adds_bias or packed.adds_matrix)
    core = _core(backend, packed, switches, solution, filled, algorithms)
    if core is None and packed.adds_bias and packed.activation == cublaslt.PLAIN:
        filled = True
        core = _core(backend, packed, switches, solution, filled, algorithms)
    if core is None:
        return None
    if copies or core.fills:
        return careful(backend, product, packed, core.run, core.fills)
    simple = core.straight or direct(backend, product, core.run)
    fast = _aligned(backend, product, switches, solution, algorithms, simple) or simple
    return guarded(product, fast, careful(backend, product, packed, core.run, False)) if product.may_alias else fast


def _aligned(
    backend: Any, product: Product, switches: Switches, solution: str | None, algorithms: Algorithms, simple: Launch
) -> Launch | None:
    """A launch on padded copies, where they make it faster; it falls back on the simple one."""
    stand_in = gemm_padding.stand_in(product, compute_type(product, switches))
    if stand_in is None or (solution or _preferred(product, switches)) == few_rows.NAME:
        return None
    core = _core(backend, stand_in, switches, solution, False, algorithms)
    if core is None or core.fills:
        return None
    return padded(backend, product, stand_in, core.run, simple)


def _packed(product: Product) -> Product:
    """The product of row-major copies of what BLAS cannot take."""
    left, right, out = (m if m.is_blas else m.compact for m in (product.left, product.right, product.out))
    return product._replace(left=left, right=right, out=out)


def _core(
    backend: Any, product: Product, switches: Switches, solution: str | None, filled: bool, algorithms: Algorithms
) -> Core | None:
    chosen = solution or _preferred(product, switches)
    if not chosen:
        return None
    if chosen == "own":
        return _own(product)
    if chosen == few_rows.NAME:
        few = few_rows.run_of(product)
        return None if few is None else Core(_same, (few,))
    if chosen == "cublas":
        run = gemm_cublas.core(backend, product, compute_type(product, switches))
        if run is not None:
            return Core(_same, (run,), product.added is not None)
    rank = int(chosen.rpartition("_")[2]) if chosen.startswith("cublaslt_") else 0
    core = _by_cublaslt(backend, product, switches, filled, rank, algorithms)
    return core if core is not None or solution is not None else _own(product)


def _preferred(product: Product, switches: Switches) -> str:
    """The way that the switches ask for; empty where no library is there, so that CuPy has to do it."""
    library = switches.preferred_blas_library
    if product.out.dtype not in cublaslt.DATA_TYPES or product.is_empty or library == "own":
        return "own"
    if library == "default" and few_rows.takes(product):
        return few_rows.NAME
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

    return Core(_same, (run,))


def _same(run: Run) -> Run:
    return run


def _by_cublaslt(
    backend: Any, product: Product, switches: Switches, filled: bool, rank: int, algorithms: Algorithms
) -> Core | None:
    described = problem(product, switches, filled)
    operation = cublaslt.Product(backend.index, described)
    algorithm = _ranked(operation, rank) if rank else algorithms.first(backend.index, operation, described)
    if algorithm is None:
        return None
    call, biased = operation.call(algorithm), described.epilogue in _BIASED
    adds = product.added is not None and not filled and not biased
    fire = firing(backend, operation, call, biased)
    parts = backend, fire, call.workspace, product.is_swapped, adds
    return Core(_run, parts, filled and not biased, straight(backend, product, fire, call.workspace, adds, biased))


def _ranked(operation: cublaslt.Product, rank: int) -> cublaslt.Algorithm | None:
    proposed = operation.algorithms(rank + 1)
    return proposed[rank] if rank < len(proposed) else None


def _run(backend: Any, fire: Fire, size: int, is_swapped: bool, adds: bool) -> Run:
    def run(stream: int, left: int, right: int, added: int, out: int, bias: int) -> None:
        workspace = backend.workspace(cublaslt.WORKSPACE_BYTES).pointer if size else 0
        if is_swapped:
            left, right = right, left
        fire(stream, right, left, added if adds else out, out, workspace, bias)

    return run
