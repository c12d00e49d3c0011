"""How much work an operation would be on the host, by its operands' shapes, where that grows faster than their bytes.

A few small tensors can name years of work: a window as long as its input, a product of long matrices, attention over
long sequences. Such an operation is refused when its plan is made, so that one that comes again costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from telegrad_protocol.errors import LimitExceededError
from telegrad_protocol.meta import Meta

limit = math.inf
"""Multiply-adds that an operation may be; a server sets it."""

_FACTORIZATION: Final = 10
"""Multiply-adds per element and column of a matrix, for the slowest factorizations: those that iterate."""


def check_work(name: str, operands: dict[str, Any], outs: tuple[Meta, ...]) -> None:
    """Raise LimitExceededError if an operation is more work than the limit; ``operands`` are by parameter."""
    estimate = _ESTIMATES.get(name.partition(".")[0].rstrip("_"))
    if estimate is None:
        return
    work = estimate(operands, outs)
    if work > limit:
        raise LimitExceededError(
            f"{name.lstrip('_')}: is about {work:.1e} multiply-adds on the CPU, and this server allows {limit:.1e} "
            "(TELEGRAD_OPERATION_WORK); use smaller operands, or a GPU"
        )


def _product(inner: str) -> Callable[[dict[str, Any], tuple[Meta, ...]], float]:
    """A product of matrices, which sums over the last dimension of the operand ``inner``."""
    return lambda operands, outs: float(outs[0].numel * operands[inner].shape[-1])


def _linear_backward(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    """Two products, of the gradient by the weight and by the input; what is None is of a product that nobody needs."""
    given = [operands[name] for name in ("input", "weight") if operands[name] is not None]
    return float(operands["grad_out"].numel * sum([meta.shape[-1] for meta in given]))


def _convolution(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    weight = operands["weight"]
    placed = operands["input"] if operands["transposed"] else outs[0]
    return float(placed.numel * weight.numel / max(weight.shape[0], 1))


def _weight_gradient(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    grad, weight = operands["grad_output"], outs[0]
    return float(grad.numel * weight.numel / max(weight.shape[0], 1))


def _windows_along_axes(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    grad = operands.get("grad_output")
    return float((outs[0].numel if grad is None else grad.numel) * sum(_sizes(operands["kernel_size"])))


def _windows(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    return float(outs[0].numel * math.prod(_sizes(operands["kernel_size"])))


def _sizes(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _attention(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    query, key, value = operands["query"], operands["key"], operands["value"]
    return float(math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _attention_backward(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    return 2.5 * _attention(operands, outs)


def _factorization(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    matrices = operands["A"] if "A" in operands else operands["input"]
    return float(_FACTORIZATION * matrices.numel * min(matrices.shape[-2:]))


def _solution(operands: dict[str, Any], outs: tuple[Meta, ...]) -> float:
    matrices = next(operands[name] for name in ("A", "LU", "L", "LD") if name in operands)
    return float(matrices.numel * (min(matrices.shape[-2:]) + operands["B"].shape[-1]))


_ESTIMATES: Final[dict[str, Callable[[dict[str, Any], tuple[Meta, ...]], float]]] = {
    **dict.fromkeys(("mm", "bmm", "linear", "mv"), _product("input")),
    **dict.fromkeys(("addmm", "_addmm_activation"), _product("mat1")),
    "baddbmm": _product("batch1"), "addmv": _product("mat"), "_linear_backward": _linear_backward,
    "convolution": _convolution, "_convolution_weight_backward": _weight_gradient,
    "_avg_pool": _windows_along_axes, "_avg_pool_backward": _windows_along_axes, "_max_pool": _windows,
    **dict.fromkeys(("_attention", "_attention_dropout"), _attention),
    **dict.fromkeys(("_attention_backward", "_attention_dropout_backward"), _attention_backward),
    **dict.fromkeys(
        ("linalg_svd", "_svdvals", "linalg_eig", "_eigvals", "linalg_eigh", "_eigvalsh", "linalg_qr", "geqrf",
         "linalg_inv_ex", "linalg_det", "linalg_slogdet", "linalg_lu_factor_ex", "linalg_ldl_factor_ex",
         "linalg_cholesky_ex", "matrix_exp", "_linalg_pinv", "_linalg_lstsq", "_householder_product"),
        _factorization,
    ),
    **dict.fromkeys(
        ("_linalg_solve", "linalg_solve_triangular", "linalg_lu_solve", "linalg_ldl_solve", "cholesky_solve"), _solution
    ),
}  # fmt: skip
"""By the operation, its multiply-adds; what is missing here is no more work than a few passes over its operands."""
