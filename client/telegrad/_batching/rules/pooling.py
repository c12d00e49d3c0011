"""Pooling: the batch becomes a part of the samples."""

from __future__ import annotations

from typing import Any

from telegrad._tensor.tensor import Tensor

from ..case import Case, Operand, enter, rule

_DIMS = {"1d": 1, "2d": 2, "3d": 3}


def _folded(case: Case, dims: int, result_of: Any) -> Any:
    """Return the results for samples of which the batch is a part, with it as the first dimension again."""
    operands = [value for value in case.args if isinstance(value, Operand)]
    is_single = operands[0].ndim == dims + 1
    tensors = [operand.front if is_single else operand.front.flatten(0, 1) for operand in operands]
    result = result_of(*tensors)
    if is_single:
        return result
    parts = [part.unflatten(0, (case.size, -1)) for part in ((result,) if isinstance(result, Tensor) else result)]
    if isinstance(result, Tensor):
        return parts[0]
    return result._make(parts) if hasattr(result, "_make") else tuple(parts)


def _pool(case: Case) -> Any:
    rest = [value for value in case.args if not isinstance(value, Operand)]
    return _folded(case, _DIMS[case.name[-2:]], lambda *tensors: case.call(*tensors, *rest))


enter(_pool, [f"{kind}_pool{dims}" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for dims in _DIMS])


@rule("max_unpool1d", "max_unpool2d", "max_unpool3d")
def _unpool(case: Case) -> Any:
    dims = _DIMS[case.name[-2:]]
    *rest, size = case.args[2:]
    size = None if size is None else size[-dims:]
    return _folded(case, dims, lambda *tensors: case.call(*tensors, *rest, size))


@rule("_max_pool", "_avg_pool", "_adaptive_avg_pool", "_adaptive_max_pool")
def _raw_pool(case: Case) -> Any:
    x, *rest = case.args
    dims = len(rest[0])
    if x.ndim < dims + 1:
        return NotImplemented
    return _folded(case, dims, lambda tensor: case.call(tensor, *rest))


@rule("_max_pool_backward", "_avg_pool_backward", "_adaptive_avg_pool_backward")
def _raw_backward(case: Case) -> Any:
    size, *rest = [value for value in case.args if not isinstance(value, Operand)]
    return _folded(case, len(size), lambda *tensors: case.call(*tensors, size, *rest))
