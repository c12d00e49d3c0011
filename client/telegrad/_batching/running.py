"""Runs an operation on bound arguments for a whole batch: by its rule, taken apart, or element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from telegrad._ops.batching import Level
from telegrad._ops.batching import entered as inside
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import AutogradError, NotSupportedError
from telegrad_protocol.ops import Op

from . import decomposition, fallback
from .case import DIRECT, RULES, Case, Operand
from .pointwise import pointwise
from .tensor import BatchedTensor, physical_at


def run(op: Op, bound: Sequence[Any], level: int, entered: Level) -> Any:
    """Run an operation on bound arguments, and return its results in the level, which ``entered`` describes.

    The thread is outside of the level.
    """
    size = entered.size
    metas = tuple([meta_of(value) for value in bound])
    inferred = op.infer(metas)
    outs = inferred if isinstance(inferred, tuple) else (inferred,) if inferred is not None else ()
    args = [operand_of(value, meta, level, size) for value, meta in zip(bound, metas, strict=True)]
    case = Case(op, args, size, outs)
    if not size:
        return bound[op.mutates[0]] if op.mutates else result_at(fallback.empty(case), level)
    if op.mutates:
        return _written(case, bound, level, entered)
    selected = pointwise if op.promotion else RULES.get(op.public)
    result = NotImplemented if selected is None else selected(case)
    if result is NotImplemented:
        result = _without_rule(case, bound, entered)
    return result_at(result, level)


def _without_rule(case: Case, bound: Sequence[Any], entered: Level) -> Any:
    """Take an operation apart into others, or compute it element by element."""
    with inside(entered) as level:
        try:
            parts = decomposition.run(case.op, bound)
        except NotSupportedError:
            parts = None
        if parts is not None:
            return _mapped(parts, lambda tensor: physical_at(tensor, level, case.size))
    return fallback.run(case)


def _written(case: Case, bound: Sequence[Any], level: int, entered: Level) -> Any:
    """Run an operation that writes into its first operand."""
    op, target = case.op, case.args[0]
    if not isinstance(target, Operand) or len(op.mutates) != 1:
        return result_at(fallback.run(case), level)
    if not target.is_batched:
        raise AutogradError(
            "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in "
            "extra_args that has more elements than `self`. This happened due to `other` being vmapped over but "
            f"`self` not being vmapped over in a vmap. Please use an out-of-place operator instead of {op.public}."
        )
    base = op.base.public
    selected = pointwise if op.promotion else RULES.get(base)
    if selected is not None and (op.promotion or base in DIRECT) and selected(case) is not NotImplemented:
        return bound[0]
    if op.form != "inplace":
        fallback.run(case)
        return bound[0]
    copy = BatchedTensor(level, target.tensor.clone())  # what the derivative needs is not overwritten
    result = run(op.base, (copy, *bound[1 : len(op.base.params)]), level, entered)
    target.tensor.copy_(physical_at(result, level, case.size))
    return bound[0]


def operand_of(value: Any, meta: Any, level: int, size: int) -> Any:
    """Return an argument as rules see it."""
    if isinstance(value, Tensor):
        is_batched = isinstance(value, BatchedTensor) and value._level == level
        return Operand(value._physical if is_batched else value, meta, is_batched, size)  # type: ignore[attr-defined]
    if isinstance(value, tuple) and any([isinstance(item, Tensor) for item in value]):
        return tuple([operand_of(item, m, level, size) for item, m in zip(value, meta, strict=True)])
    return value


def meta_of(value: Any) -> Any:
    """Return an argument with metas of one element in the place of tensors."""
    if isinstance(value, Tensor):
        return value._meta
    return tuple([meta_of(item) for item in value]) if isinstance(value, tuple) else value


def result_at(result: Any, level: int) -> Any:
    """Return physical results as tensors of a level."""
    return _mapped(result, lambda tensor: BatchedTensor(level, tensor))


def _mapped(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(result, Tensor):
        return change(result)
    if isinstance(result, (tuple, list)):
        parts = [_mapped(part, change) for part in result]
        return result._make(parts) if hasattr(result, "_make") else tuple(parts)
    return result
