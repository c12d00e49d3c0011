"""The node of an operation in the backward graph: it evaluates the derivative formulas of the operation's inputs.

Un-broadcasting, and casting a gradient back to its input's type, are done here, once for all formulas. Knows nothing of
how a graph is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from server.engine import functional as F
from server.engine.operators import Formula, Operator
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from .gradient_form import Pick, gradient_form
from .graph import Edge, Node, SavedTensor, SavedTensorList, next_sequence


class InputGradient(NamedTuple):
    """How the gradient of one differentiable argument is computed.

    ``pick`` selects the formula's arguments from everything that a node lays out; ``meta`` is the argument's meta, or
    the tuple of metas of a list. Where the gradient is not wanted, ``formula`` is None and ``meta`` holds one None for
    each gradient that is left out.
    """

    formula: Formula | None
    pick: Pick
    meta: Any


class GradientPlan:
    """How an operation on operands of given metas is differentiated with respect to some of them; worked out once.

    A node lays out what its formulas may name in one list: ``constants``, the saved tensors, the gradients of its
    outputs, and for formulas that name ``grads`` the tuple of these. ``saves`` has the positions of saved arguments,
    ``saves_outs`` pairs of a place among the saved tensors and the number of the result that is saved there; saved
    tensors are in the order in which formulas name them. ``joint`` is the formula of all gradients at once, where there
    is one and several are wanted; ``inputs`` has one entry per differentiable argument. ``has_known_results`` says that
    every call on operands of these metas makes results of the same metas, and has this same plan. ``fixed`` and
    ``saved`` tell where the constants and the saved tensors come from; ``numbers`` are the positions of operands that
    are no tensors. ``program`` is what nodes do, once that is known (``node_program``), ``asked`` how many were asked.
    ``turns`` are what ``sparing`` has nodes do, None until that is known.
    """

    __slots__ = (
        "asked", "constants", "fixed", "has_known_results", "inputs", "joint", "names_grads", "numbers", "operator",
        "program", "reads", "saved", "saves", "saves_outs", "turns",
    )  # fmt: skip

    def __init__(self, operator: Operator, needed: int, bound: tuple[Any, ...]) -> None:
        """``needed`` has a bit per wanted argument's position; ``bound`` are all arguments, with metas for values."""
        form = gradient_form(operator, needed, bound)
        self.operator = operator
        self.fixed, self.saved, self.saves, self.saves_outs = form.fixed, form.saved, form.saves, form.saves_outs
        self.names_grads, self.reads, self.numbers = form.names_grads, form.reads, form.numbers
        self.has_known_results = False
        self.program: Any = None
        self.turns: Any = None
        self.asked = 0
        self.constants = [
            form.mask if where == "wanted" else _constant(where, bound[number]) for where, number in form.fixed
        ]
        self.joint: InputGradient | None = None
        if form.joint is not None:
            self.joint = InputGradient(*form.joint, tuple([bound[p] for p in operator.grad_positions]))
        self.inputs = tuple([
            InputGradient(formula, pick, bound[p] if formula is not None else _left_out(bound[p]))
            for p, formula, pick in form.inputs
        ])  # fmt: skip


def _constant(where: str, argument: Any) -> Any:
    """Return what a formula gets for an argument that is not saved: its meta if it asks for it, None for a tensor."""
    if where == "meta":
        return argument
    if argument.__class__ is tuple:
        return tuple([_constant(where, item) for item in argument])
    return None if argument.__class__ is Meta else argument


def _left_out(meta: Any) -> tuple[None, ...]:
    """Return what stands for the gradients of an argument for which none is wanted."""
    return (None,) * len(meta) if meta.__class__ is tuple else (None,)


@cache
def _name_of(public: str) -> str:
    """What PyTorch prints as ``grad_fn`` of a result of an operation."""
    return "".join(word.capitalize() for word in public.split("_")) + "Backward0"


class OpNode(Node):
    """The node of one executed operation; ``saved`` is None once it is released.

    Only the last node of a composite has ``composed``: the composite, and the edges that it was applied to.
    """

    __slots__ = ("composed", "plan", "saved")

    composed: tuple[Operator, Sequence[Edge]]

    def __init__(
        self,
        plan: GradientPlan,
        edges: Sequence[Edge | None],
        metas: tuple[Meta, ...],
        saved: list[SavedTensor | SavedTensorList],
    ) -> None:
        self.sequence = next_sequence()
        self.edges = edges
        self.metas = metas
        self.retained = None
        self.plan = plan
        self.saved: list[SavedTensor | SavedTensorList] | None = saved

    @property
    def name(self) -> str:
        return _name_of(self.plan.operator.op.base.public)

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        saved, plan = self.saved, self.plan
        if saved is None:
            raise AutogradError(
                "Trying to backward through the graph a second time: its saved values were freed by the first. Specify "
                "retain_graph=True to keep them"
            )
        operands = plan.constants.copy()
        for item in saved:
            operands.append(item.unpack(self))
        operands += grads if len(grads) == 1 else self._fill_gaps(grads)
        if plan.names_grads:
            operands.append(tuple(operands[-len(grads) :]))
        results: list[Value | None] = []
        if plan.joint is not None:
            formula, pick, metas = plan.joint
            for grad, meta in zip(formula(*pick(operands)), metas):  # type: ignore[misc]
                results.append(grad if grad is None or grad.meta is meta else fit_gradient(grad, meta))
            return results
        for formula, pick, meta in plan.inputs:
            if formula is None:
                results += meta
            elif meta.__class__ is tuple:
                results += _fit_all(formula(*pick(operands)), meta)
            else:
                grad = formula(*pick(operands))
                results.append(grad if grad is None or grad.meta is meta else fit_gradient(grad, meta))
        return results

    def _fill_gaps(self, grads: Sequence[Value | None]) -> list[Value | None]:
        """Return the gradients with zeros for outputs that no gradient has reached and formulas require."""
        plan = self.plan
        return [
            zeros(meta) if grad is None and (plan.names_grads or number in plan.reads) else grad
            for number, (grad, meta) in enumerate(zip(grads, self.metas, strict=True))
        ]

    def release(self) -> None:
        if self.saved:
            self.saved = None


new_node = partial(object.__new__, OpNode)
"""Makes a node without attributes, for hot paths that set all of them themselves."""


def zeros(meta: Meta) -> Value:
    """Return a row-major gradient of zeros."""
    return F.zeros(meta.shape, dtype=meta.dtype, device=meta.device)  # type: ignore[no-any-return]


def _fit_all(grads: Any, metas: tuple[Any, ...]) -> list[Value | None]:
    """Fit the gradients of a list of tensors; None in their place means that none of them has one."""
    if grads is None:
        return [None] * len(metas)
    return [fit_gradient(grad, meta) for grad, meta in zip(grads, metas, strict=True)]


def fit_gradient(grad: Value | None, meta: Any) -> Value | None:
    """Return a formula's gradient in the input's shape, dtype and device, summed over broadcast dimensions."""
    if grad is None or meta.__class__ is not Meta:
        return None
    given = grad.meta
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
