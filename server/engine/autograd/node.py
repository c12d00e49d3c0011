"""The node of an operation: evaluates the derivative formulas of its inputs.

Un-broadcasting, and casting a gradient back to its input's type, are done here, once for all formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from .. import functional as F
from ..operators import TOGETHER, Derivative, Formula, Operator
from ..value import Value
from .graph import Edge, Node, Saved, next_sequence

Getter: TypeAlias = "Callable[[OpNode, Sequence[Value | None]], Any]"


class Step(NamedTuple):
    """How one differentiable argument's gradient is found; ``formula`` is None where it is not wanted."""

    position: int
    formula: Formula | None
    getters: tuple[Getter, ...]


class Wanted:
    """Which gradients of an operation are wanted, and what that takes; worked out once for each choice.

    ``saves`` tells for each argument whether it is saved, ``steps`` has an entry for every differentiable argument.
    ``together`` is the formula of all gradients at once, where there is one and several are wanted.
    """

    __slots__ = ("mask", "saves", "saves_args", "saves_outs", "steps", "together")

    def __init__(self, operator: Operator, positions: tuple[int, ...]) -> None:
        chosen = {p: operator.derivatives[p] for p in positions if p in operator.derivatives}
        self.saves_args = tuple(sorted({p for d in chosen.values() for p in d.saves_args}))
        self.saves_outs = tuple(sorted({p for d in chosen.values() for p in d.saves_outs}))
        self.saves = tuple(p in self.saves_args for p in range(len(operator.op.params)))
        self.mask = tuple(p in chosen for p in operator.grad_positions)
        self.steps = tuple(_step(p, chosen.get(p)) for p in operator.grad_positions)
        joint = operator.derivatives.get(TOGETHER) if len(chosen) > 1 else None
        self.together = _step(TOGETHER, joint) if joint else None

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

    __slots__ = ("args", "operator", "saved_outs", "signature", "wanted")

    def __init__(
        self, operator: Operator, edges: tuple[Edge | None, ...], metas: tuple[Meta, ...], args: tuple[Any, ...],
        wanted: Wanted,
    ) -> None:  # fmt: skip
        self.sequence = next_sequence()
        self.edges = edges
        self.metas = metas
        self.retained = None
        self.operator = operator
        self.args: tuple[Any, ...] | None = args
        self.wanted = wanted
        self.saved_outs: dict[int, Saved] = {}
        self.signature: Any = None

    def retain(self, output: int, value: Value) -> None:
        super().retain(output, value)
        self.signature = None

    @property
    def name(self) -> str:
        public = self.operator.op.base.public
        return "".join(word.capitalize() for word in public.split("_")) + "Backward0"

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        args = self.args
        if args is None:
            raise AutogradError(
                "trying to backward through the graph a second time: its saved values were freed by the first; "
                "pass retain_graph=True to keep them"
            )
        wanted = self.wanted
        if wanted.together is not None:
            found = _evaluate(wanted.together, self, grads)
            return [_fit(grad, _meta(args[step.position])) for grad, step in zip(found, wanted.steps, strict=True)]
        results: list[Value | None] = []
        for step in wanted.steps:
            kept = args[step.position]
            if kept.__class__ is tuple:
                results.extend(_fit_all(_evaluate(step, self, grads), kept))
            elif step.formula is None:
                results.append(None)
            else:
                results.append(_fit(_evaluate(step, self, grads), _meta(kept)))
        return results

    def release(self) -> None:
        if self.saved_outs or self._saved_any():
            self.args = None
            self.saved_outs = {}

    def _saved_any(self) -> bool:
        """Whether a tensor was saved: a formula may name a number, which costs nothing to keep."""
        args = self.args
        return args is not None and any([args[p].__class__ in _HOLDERS for p in self.wanted.saves_args])


def _evaluate(step: Step, node: OpNode, grads: Sequence[Value | None]) -> Any:
    return step.formula and step.formula(*[get(node, grads) for get in step.getters])


def _step(position: int, derivative: Derivative | None) -> Step:
    if derivative is None:
        return Step(position, None, ())
    return Step(position, derivative.formula, tuple([_GETTERS[where](number) for where, number in derivative.sources]))


def _get_grad(number: int) -> Getter:
    def get(node: OpNode, grads: Sequence[Value | None]) -> Any:
        found = grads[number]
        return found if found is not None else zeros(node.metas[number])

    return get


def _get_grads(_: int) -> Getter:
    return lambda node, grads: tuple([zeros(m) if g is None else g for g, m in zip(grads, node.metas, strict=True)])


def _get_out(number: int) -> Getter:
    return lambda node, grads: node.saved_outs[number].unpack(node)


def _get_argument(number: int) -> Getter:
    def get(node: OpNode, grads: Sequence[Value | None]) -> Any:
        kept = node.args[number]  # type: ignore[index]
        return kept.unpack(node) if kept.__class__ is Saved else _unpack(kept, node)

    return get


def _get_meta(number: int) -> Getter:
    def get(node: OpNode, grads: Sequence[Value | None]) -> Any:
        kept = node.args[number]  # type: ignore[index]
        return tuple(map(_meta, kept)) if isinstance(kept, tuple) else _meta(kept)

    return get


def _get_wanted(_: int) -> Getter:
    return lambda node, grads: node.wanted.mask


_GETTERS: dict[str, Callable[[int], Getter]] = {
    "grad": _get_grad, "grad_out": _get_grad, "grads": _get_grads, "out": _get_out, "arg": _get_argument,
    "meta": _get_meta, "wanted": _get_wanted,
}  # fmt: skip


def _unpack(kept: Any, node: OpNode) -> Any:
    if kept.__class__ is Meta:
        return None  # not saved, since no wanted gradient names it
    if kept.__class__ is Saved:
        return kept.unpack(node)
    return tuple([_unpack(k, node) for k in kept]) if kept.__class__ is tuple else kept


_HOLDERS = (Saved, tuple)


def zeros(meta: Meta) -> Value:
    """A row-major gradient of nothing."""
    return F.zeros(meta.shape, dtype=meta.dtype, device=meta.device)  # type: ignore[no-any-return]


def _meta(kept: Any) -> Any:
    return kept.meta if isinstance(kept, Saved) else kept


def _fit_all(found: Any, kept: tuple[Any, ...]) -> list[Value | None]:
    """The gradients of a list of tensors."""
    return [None] * len(kept) if found is None else [_fit(g, _meta(k)) for g, k in zip(found, kept, strict=True)]


def _fit(grad: Value | None, meta: Any) -> Value | None:
    """A formula's gradient in the shape and type of the input: summed over what was broadcast."""
    if grad is None or meta.__class__ is not Meta:
        return None
    given = grad.meta
    if given is meta:
        return grad
    if given.shape != meta.shape:
        grad = sum_to_size(grad, meta.shape)
    if given.dtype is not meta.dtype:
        grad = _cast(grad, meta)
    return grad if given.device is meta.device else F._to_copy(grad, device=meta.device)


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
