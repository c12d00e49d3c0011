"""The node of an operation: evaluates the derivative formulas of its inputs.

Un-broadcasting, and casting a gradient back to its input's type, are done here, once for all formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from .. import functional as F
from ..operators import Operator
from ..value import Value
from .graph import Edge, Node, Saved

Kept: TypeAlias = tuple[tuple[Any, ...], tuple[int, ...], frozenset[int]]
"""Arguments (``Saved``, metas, attributes), the positions whose gradient is wanted, the results to save."""


class OpNode(Node):
    """Backward of one executed operation."""

    __slots__ = ("args", "needed", "operator", "saved_outs", "saves_outs")

    def __init__(self, operator: Operator, edges: tuple[Edge | None, ...], metas: tuple[Meta, ...], kept: Kept) -> None:
        super().__init__(edges, metas)
        self.operator = operator
        self.args: tuple[Any, ...] | None
        self.args, self.needed, self.saves_outs = kept
        self.saved_outs: dict[int, Saved] = {}

    @property
    def name(self) -> str:
        public = self.operator.op.base.public
        return "".join(word.capitalize() for word in public.split("_")) + "Backward0"

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        if self.args is None:
            raise AutogradError(
                "trying to backward through the graph a second time: its saved values were freed by the first; "
                "pass retain_graph=True to keep them"
            )
        results: list[Value | None] = []
        for position in self.operator.grad_positions:
            results.extend(self._gradient(position, grads))
        return results

    def release(self) -> None:
        if self.saved_outs or any(map(_is_saved, self.args or ())):
            self.args = None
            self.saved_outs = {}

    def _gradient(self, position: int, grads: Sequence[Value | None]) -> list[Value | None]:
        kept = self.args[position]  # type: ignore[index]
        derivative = self.operator.derivatives.get(position)
        if position not in self.needed or derivative is None:
            return [None] * (len(kept) if isinstance(kept, tuple) else 1)
        found = derivative.formula(*[self._source(source, grads) for source in derivative.sources])
        if isinstance(kept, tuple):
            return [_fit(g, _meta(k)) for g, k in zip(found, kept, strict=True)]
        return [_fit(found, _meta(kept))]

    def _source(self, source: tuple[str, int], grads: Sequence[Value | None]) -> Any:
        where, number = source
        if where == "grad" or where == "grad_out":
            return self._materialized(grads, number)
        if where == "grads":
            return tuple(self._materialized(grads, n) for n in range(len(self.metas)))
        if where == "out":
            return self.saved_outs[number].unpack(self)
        kept = self.args[number]  # type: ignore[index]
        if where == "meta":
            return tuple(map(_meta, kept)) if isinstance(kept, tuple) else _meta(kept)
        return self._unpack(kept)

    def _materialized(self, grads: Sequence[Value | None], number: int) -> Value:
        grad = grads[number]
        return grad if grad is not None else zeros(self.metas[number])

    def _unpack(self, kept: Any) -> Any:
        if isinstance(kept, Saved):
            return kept.unpack(self)
        return tuple(self._unpack(k) for k in kept) if isinstance(kept, tuple) else kept


def zeros(meta: Meta) -> Value:
    """A row-major gradient of nothing."""
    return F.zeros(meta.shape, dtype=meta.dtype, device=meta.device)  # type: ignore[no-any-return]


def _is_saved(kept: Any) -> bool:
    return any(map(_is_saved, kept)) if isinstance(kept, tuple) else isinstance(kept, Saved)


def _meta(kept: Any) -> Any:
    return kept.meta if isinstance(kept, Saved) else kept


def _fit(grad: Value | None, meta: Any) -> Value | None:
    """A formula's gradient in the shape and type of the input: summed over what was broadcast."""
    if grad is None or not isinstance(meta, Meta):
        return None
    if grad.meta.shape != meta.shape:
        grad = sum_to_size(grad, meta.shape)
    if grad.meta.dtype is not meta.dtype:
        grad = _cast(grad, meta)
    return grad if grad.meta.device is meta.device else F._to_copy(grad, device=meta.device)


def _cast(grad: Value, meta: Meta) -> Value:
    if grad.meta.dtype.is_complex and not meta.dtype.is_complex:
        grad = F.real(grad)
    return grad if grad.meta.dtype is meta.dtype else F._to_copy(grad, dtype=meta.dtype)


def sum_to_size(grad: Value, shape: tuple[int, ...]) -> Value:
    """Sum ``grad`` over the dimensions along which ``shape`` was broadcast to it."""
    lead = grad.meta.ndim - len(shape)
    dims = [d for d in range(grad.meta.ndim) if d < lead or (shape[d - lead] == 1 and grad.meta.shape[d] != 1)]
    if len(dims) == lead:
        return F.sum(grad, tuple(dims))
    grad = F.sum(grad, tuple(dims), True)
    return F.reshape(grad, shape) if lead else grad
