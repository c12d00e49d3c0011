"""The node of an operation: evaluates the derivative formulas of its inputs.

Un-broadcasting, and casting a gradient back to its input's type, are done here, once for all formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from .. import functional as F
from ..operators import TOGETHER, Derivative, Operator
from ..value import Value
from .graph import Edge, Node, Saved


class Wanted:
    """Which gradients of an operation are wanted, and what that takes; worked out once for each choice."""

    __slots__ = ("mask", "saves_args", "saves_outs", "steps", "together")

    def __init__(self, operator: Operator, positions: tuple[int, ...]) -> None:
        chosen = {p: operator.derivatives[p] for p in positions if p in operator.derivatives}
        self.saves_args = frozenset(p for d in chosen.values() for p in d.saves_args)
        self.saves_outs = frozenset(p for d in chosen.values() for p in d.saves_outs)
        self.steps = tuple((p, chosen.get(p)) for p in operator.grad_positions)
        """Every differentiable argument with its formula, None where its gradient is not wanted."""
        self.mask = tuple(p in chosen for p in operator.grad_positions)
        self.together = operator.derivatives.get(TOGETHER) if len(chosen) > 1 else None

    @staticmethod
    def of(operator: Operator, positions: tuple[int, ...]) -> Wanted:
        """The one for this choice."""
        found = operator.grad_plans.get(positions)
        if found is None:
            found = operator.grad_plans[positions] = Wanted(operator, positions)
        return found


class OpNode(Node):
    """Backward of one executed operation.

    ``args`` are what it was called with: ``Saved`` where a formula names the value, the meta of other tensors.
    """

    __slots__ = ("args", "operator", "saved_outs", "wanted")

    def __init__(
        self, operator: Operator, edges: tuple[Edge | None, ...], metas: tuple[Meta, ...], args: tuple[Any, ...],
        wanted: Wanted,
    ) -> None:  # fmt: skip
        super().__init__(edges, metas)
        self.operator = operator
        self.args: tuple[Any, ...] | None = args
        self.wanted = wanted
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
        if self.wanted.together is not None:
            return self._differentiate_all(self.wanted.together, grads)
        results: list[Value | None] = []
        for position, derivative in self.wanted.steps:
            self._differentiate(position, derivative, grads, results)
        return results

    def release(self) -> None:
        if self.saved_outs or self._saved_any():
            self.args = None
            self.saved_outs = {}

    def _saved_any(self) -> bool:
        """Whether a tensor was saved: a formula may name a number, which costs nothing to keep."""
        args = self.args
        return args is not None and any([args[p].__class__ in _HOLDERS for p in self.wanted.saves_args])

    def _differentiate(
        self, position: int, derivative: Derivative | None, grads: Sequence[Value | None], results: list[Value | None]
    ) -> None:
        """Append the gradient of one argument; of each of its tensors where it is a list."""
        kept = self.args[position]  # type: ignore[index]
        if derivative is None:
            results.extend([None] * (len(kept) if kept.__class__ is tuple else 1))
            return
        found = derivative.formula(*[self._source(source, grads) for source in derivative.sources])
        if kept.__class__ is tuple:
            results.extend([_fit(g, _meta(k)) for g, k in zip(found, kept, strict=True)])
        else:
            results.append(_fit(found, _meta(kept)))

    def _differentiate_all(self, derivative: Derivative, grads: Sequence[Value | None]) -> list[Value | None]:
        found = derivative.formula(*[self._source(source, grads) for source in derivative.sources])
        args: Any = self.args
        return [_fit(grad, _meta(args[p])) for grad, (p, _) in zip(found, self.wanted.steps, strict=True)]

    def _source(self, source: tuple[str, int], grads: Sequence[Value | None]) -> Any:
        where, number = source
        if where == "grad" or where == "grad_out":
            grad = grads[number]
            return grad if grad is not None else zeros(self.metas[number])
        if where == "grads":
            return tuple(zeros(m) if g is None else g for g, m in zip(grads, self.metas, strict=True))
        if where == "out":
            return self.saved_outs[number].unpack(self)
        if where == "wanted":
            return self.wanted.mask
        kept = self.args[number]  # type: ignore[index]
        if where == "meta":
            return tuple(map(_meta, kept)) if isinstance(kept, tuple) else _meta(kept)
        return self._unpack(kept)

    def _unpack(self, kept: Any) -> Any:
        if isinstance(kept, Saved):
            return kept.unpack(self)
        if kept.__class__ is Meta:
            return None  # not saved, since no wanted gradient names it
        return tuple(self._unpack(k) for k in kept) if isinstance(kept, tuple) else kept


_HOLDERS = (Saved, tuple)


def zeros(meta: Meta) -> Value:
    """A row-major gradient of nothing."""
    return F.zeros(meta.shape, dtype=meta.dtype, device=meta.device)  # type: ignore[no-any-return]


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
    grad = F.sum(grad, tuple(dims), len(dims) != lead)
    return F.reshape(grad, shape) if lead and len(dims) != lead else grad
