"""Functions that PyTorch computes by others before an operator is asked for, in the terms in which it does.

What is not here and consists of other operations is taken apart as the server takes it apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.layout import broadcast_shapes

Run = Callable[..., Any]
"""Runs a function of an operation, given its public name and positional arguments."""


def _linear(run: Run, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.ndim != 2 or input.ndim == 0 or input.shape[-1] != weight.shape[1]:
        return NotImplemented
    across = run("t", weight)
    if bias is None:
        return run("matmul", input, across)
    if input.ndim == 2:
        return run("addmm", bias, input, across)
    if input.ndim == 3 and input.is_contiguous():
        rows = run("view", input, (input.shape[0] * input.shape[1], input.shape[2]))
        return run("view", run("addmm", bias, rows, across), (*input.shape[:2], weight.shape[0]))
    return run("add", run("matmul", input, across), bias)


def _softmax(public: str) -> Callable[..., Any]:
    def lower(run: Run, input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        if dim is None:
            dim = 0 if input.ndim in (0, 1, 3) else 1
        if dtype is not None and dtype is not input.dtype:
            input = input.to(dtype)
        return NotImplemented if dtype is None else run(public, input, dim)

    return lower


def _reshape(run: Run, input: Tensor, *shape: Any) -> Any:
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if not input.is_contiguous():
        return NotImplemented
    return run("view", input, tuple(sizes))


def _cross_entropy(
    run: Run, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    if target.dtype.is_floating_point or label_smoothing or size_average is not None or reduce is not None:
        return NotImplemented
    logarithms = run("log_softmax", input, min(1, input.ndim - 1))
    return run("nll_loss", logarithms, target, weight, None, ignore_index, None, reduction)


def _matmul(run: Run, input: Tensor, other: Tensor) -> Any:
    left, right = input.ndim, other.ndim
    if not (left and right) or input.shape[-1] != other.shape[-2 if right > 1 else 0]:
        return NotImplemented
    if left <= 2 and right <= 2:
        return _small_product(run, input, other)
    if right <= 2:
        rows = run("reshape", input, (-1, input.shape[-1]))
        shape = (*input.shape[:-1], *other.shape[1:])
        return run("view", run("mv" if right == 1 else "mm", rows, other), shape)
    if left <= 2:
        return NotImplemented
    batch = broadcast_shapes("matmul", tuple(input.shape[:-2]), tuple(other.shape[:-2]))
    first, second = [_batches(run, tensor, batch) for tensor in (input, other)]
    return run("view", run("bmm", first, second), (*batch, input.shape[-2], other.shape[-1]))


def _small_product(run: Run, input: Tensor, other: Tensor) -> Any:
    if input.ndim == other.ndim:
        return run("dot" if input.ndim == 1 else "mm", input, other)
    if input.ndim == 2:
        return run("mv", input, other)
    return run("squeeze", run("mm", run("unsqueeze", input, 0), other), 0)


def _batches(run: Run, tensor: Tensor, batch: tuple[int, ...]) -> Any:
    expanded = run("expand", tensor, (*batch, *tensor.shape[-2:]))
    return run("reshape", expanded, (math.prod(batch), *tensor.shape[-2:]))


def _attention(
    run: Run, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if query.ndim != 4 or dropout_p or enable_gqa or query.shape[:2] != key.shape[:2]:
        return NotImplemented
    is_trained = thread.modes.records and any([t._is_tracked() for t in (query, key, value)])
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return run("_attention", query, key, value, attn_mask, is_causal, factor, is_trained)[0]


def _chunk(run: Run, input: Tensor, chunks: int, dim: int = 0) -> Any:
    if not input.ndim or chunks <= 0:
        return NotImplemented
    return run("split", input, max(-(-input.shape[dim] // chunks), 1), dim)


def _narrow(run: Run, input: Tensor, dim: int, start: Any, length: int) -> Any:
    if not isinstance(start, int) or not input.ndim or start < 0:
        return NotImplemented
    return run("slice", input, dim, start, start + length, 1)


def _movedim(run: Run, input: Tensor, source: Any, destination: Any) -> Any:
    if not isinstance(source, int) or not isinstance(destination, int) or not input.ndim:
        return NotImplemented
    dims = list(range(input.ndim))
    dims.insert(destination % input.ndim, dims.pop(source % input.ndim))
    return run("permute", input, dims)


LOWERINGS: Final[dict[str, Callable[..., Any]]] = {
    "matmul": _matmul, "scaled_dot_product_attention": _attention, "chunk": _chunk,
    "linear": _linear, "reshape": _reshape, "cross_entropy": _cross_entropy,
    "softmax": _softmax("softmax"), "log_softmax": _softmax("log_softmax"), "narrow": _narrow, "movedim": _movedim,
    "moveaxis": _movedim,
}  # fmt: skip
"""By public name; NotImplemented where the arguments are not what PyTorch does so for."""
KEPT: Final = frozenset(
    (
        "positive", "median", "nanmedian", "var", "std", "var_mean", "std_mean", "mse_loss", "smooth_l1_loss",
        "huber_loss", "binary_cross_entropy", "glu", "sort", "dist", "avg_pool2d", "avg_pool3d", "linalg_vector_norm",
        "linalg_svd", "linalg_cross", "frobenius_norm",
    )
)  # fmt: skip
"""Composites here that are operators of PyTorch's own: they stay whole where no gradient is recorded."""
