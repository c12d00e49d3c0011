"""The node of an operation: evaluates the derivative formulas of its inputs.

Un-broadcasting, and casting a gradient back to its input's type, are done here, once for all formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from server.engine import functional as F
from server.engine.operators import TOGETHER, Derivative, Formula, Operator
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

from .graph import Edge, Node, Saved, SavedList, next_sequence

Source: TypeAlias = "tuple[str, int]"
Pick: TypeAlias = "Callable[[list[Any]], Sequence[Any]]"


class Step(NamedTuple):
    """How one differentiable argument's gradient is found.

    ``pick`` takes the formula's arguments out of all that a node knows; ``meta`` is the argument's. Where the gradient
    is not wanted, ``formula`` is None and ``meta`` as many times None as gradients are left out.
    """

    formula: Formula | None
    pick: Pick
    meta: Any


class Tape:
    """How an operation on operands of given metas is differentiated with respect to some of them; worked out once.

    A node lays out what its formulas may name: ``constants``, what it saved, the gradients, and for formulas that name
    ``grads`` their tuple. ``saves`` has the positions of saved arguments, ``saves_outs`` the numbers of saved results
    behind their places among all that is saved: the order is that in which formulas name them. ``joint`` is the
    formula of all gradients at once, where there is one and several are wanted. ``is_foreseen``: every call on operands
    of these metas gives new results of the same metas, and has this very tape.
    """

    __slots__ = (
        "constants", "is_foreseen", "joint", "names_grads", "operator", "reads", "saves", "saves_outs", "steps",
    )  # fmt: skip

    def __init__(self, operator: Operator, needed: int, bound: tuple[Any, ...]) -> None:
        """``needed`` has the bits of the wanted arguments' positions, ``bound`` are all arguments, values as metas."""
        wanted = [p for p in operator.grad_positions if needed >> p & 1 and p in operator.derivatives]
        chosen = {p: operator.derivatives[p] for p in wanted}
        together = operator.derivatives.get(TOGETHER) if len(chosen) > 1 else None
        formulas = [together] if together else list(chosen.values())
        named = list(dict.fromkeys([source for each in formulas for source in each.sources]))
        saved = [source for source in named if _is_saved(source, chosen.values(), bound)]
        fixed = [source for source in named if source[0] in _FIXED and source not in saved]
        mask = tuple([p in chosen for p in operator.grad_positions])
        self.operator = operator
        self.is_foreseen = False
        self.constants = [mask if where == "wanted" else _constant(where, bound[number]) for where, number in fixed]
        self.saves = tuple([number for where, number in saved if where == "arg"])
        self.saves_outs = tuple([(at, number) for at, (where, number) in enumerate(saved) if where == "out"])
        self.names_grads = ("grads", 0) in named
        self.reads = frozenset([number for where, number in named if where in ("grad", "grad_out")])
        places = {source: place for place, source in enumerate([*fixed, *saved])}
        self.joint = _step(together, places, tuple([bound[p] for p in operator.grad_positions])) if together else None
        self.steps = tuple([_step(chosen.get(p), places, bound[p]) for p in operator.grad_positions])


_FIXED = ("arg", "meta", "wanted")


def _is_saved(source: Source, chosen: Iterable[Derivative], bound: tuple[Any, ...]) -> bool:
    """Whether a named result, or tensor that a wanted gradient's own formula names."""
    where, number = source
    if where != "arg":
        return where == "out"
    return bound[number].__class__ in (Meta, tuple) and any(number in each.saves_args for each in chosen)


def _constant(where: str, argument: Any) -> Any:
    """What a formula gets of an argument that is not saved: a meta where it asks for that, else no tensor."""
    if where == "meta":
        return argument
    if argument.__class__ is tuple:
        return tuple([_constant(where, item) for item in argument])
    return None if argument.__class__ is Meta else argument


def _step(derivative: Derivative | None, places: dict[Source, int], meta: Any) -> Step:
    if derivative is None:
        return Step(None, _pick([]), (None,) * len(meta) if meta.__class__ is tuple else (None,))
    return Step(derivative.formula, _pick([_place(source, places) for source in derivative.sources]), meta)


def _place(source: Source, places: dict[Source, int]) -> int:
    where, number = source
    if where == "grads":
        return -1
    return len(places) + number if where in ("grad", "grad_out") else places[source]


def _pick(indices: list[int]) -> Pick:
    if len(indices) > 1:
        return itemgetter(*indices)
    return itemgetter(slice(indices[0], indices[0] + 1 or None) if indices else slice(0))


class OpNode(Node):
    """Backward of one executed operation; ``saved`` is what its tape says, None once it is freed."""

    __slots__ = ("saved", "tape")

    def __init__(
        self, tape: Tape, edges: Sequence[Edge | None], metas: tuple[Meta, ...], saved: list[Saved | SavedList]
    ) -> None:
        self.sequence = next_sequence()
        self.edges = edges
        self.metas = metas
        self.retained = None
        self.tape = tape
        self.saved: list[Saved | SavedList] | None = saved

    @property
    def name(self) -> str:
        public = self.tape.operator.op.base.public
        return "".join(word.capitalize() for word in public.split("_")) + "Backward0"

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        saved, tape = self.saved, self.tape
        if saved is None:
            raise AutogradError(
                "trying to backward through the graph a second time: its saved values were freed by the first; "
                "pass retain_graph=True to keep them"
            )
        known = tape.constants.copy()
        for each in saved:
            known.append(each.unpack(self))
        known += grads if len(grads) == 1 else self._without_gaps(grads)
        if tape.names_grads:
            known.append(tuple(known[-len(grads) :]))
        results: list[Value | None] = []
        if tape.joint is not None:
            formula, pick, metas = tape.joint
            for grad, meta in zip(formula(*pick(known)), metas):  # type: ignore[misc]
                results.append(grad if grad is None or grad.meta is meta else _fit(grad, meta))
            return results
        for formula, pick, meta in tape.steps:
            if formula is None:
                results += meta
            elif meta.__class__ is tuple:
                results += _fit_all(formula(*pick(known)), meta)
            else:
                grad = formula(*pick(known))
                results.append(grad if grad is None or grad.meta is meta else _fit(grad, meta))
        return results

    def _without_gaps(self, grads: Sequence[Value | None]) -> list[Value | None]:
        """The gradients, zeros for those that formulas read and none has reached."""
        tape = self.tape
        return [
            zeros(meta) if grad is None and (tape.names_grads or number in tape.reads) else grad
            for number, (grad, meta) in enumerate(zip(grads, self.metas, strict=True))
        ]

    def release(self) -> None:
        if self.saved:
            self.saved = None


new_node = partial(object.__new__, OpNode)
"""A node without its attributes, for who sets them all."""


def zeros(meta: Meta) -> Value:
    """A row-major gradient of nothing."""
    return F.zeros(meta.shape, dtype=meta.dtype, device=meta.device)  # type: ignore[no-any-return]


def _fit_all(found: Any, metas: tuple[Any, ...]) -> list[Value | None]:
    """The gradients of a list of tensors."""
    return [None] * len(metas) if found is None else [_fit(g, m) for g, m in zip(found, metas, strict=True)]


def _fit(grad: Value | None, meta: Any) -> Value | None:
    """A formula's gradient in the shape and type of the input: summed over what was broadcast."""
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
