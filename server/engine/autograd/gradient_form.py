"""What a derivative's formulas need of a call, as far as the classes of its arguments tell: the same for all shapes.

Formulas name results, arguments and gradients; a form says where each of them is found. Knows no metas and no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from server.engine.operators import TOGETHER, Derivative, Formula, Operator
from telegrad_protocol.meta import Meta

Source: TypeAlias = "tuple[str, int]"
"""Where a formula's argument comes from: a kind as in ``Derivative.sources``, and a position."""
Pick: TypeAlias = "Callable[[list[Any]], Sequence[Any]]"
Picked: TypeAlias = "tuple[Formula | None, Pick]"
"""A formula, and what selects its arguments from everything that a node lays out; None where no gradient is wanted."""
_FIXED: Final = ("arg", "meta", "wanted")
_MOST_FORMS: Final = 64
"""The most forms that are kept, per operation: a client decides what it sends."""


class GradientForm(NamedTuple):
    """What all calls of an operation have in common whose arguments are of the same classes; see ``GradientPlan``."""

    fixed: list[Source]
    saved: list[Source]
    saves: tuple[int, ...]
    saves_outs: tuple[tuple[int, int], ...]
    names_grads: bool
    reads: frozenset[int]
    numbers: frozenset[int]
    mask: tuple[bool, ...]
    """Whether each differentiable argument's gradient is wanted."""
    joint: Picked | None
    inputs: tuple[tuple[int, Formula | None, Pick], ...]
    """The position of each differentiable argument, and how its gradient is computed."""


def gradient_form(operator: Operator, needed: int, bound: tuple[Any, ...]) -> GradientForm:
    """The form of a call; ``needed`` has a bit per wanted argument's position, ``bound`` metas in place of values."""
    key = needed, *map(type, bound)
    form: GradientForm | None = operator.gradient_forms.get(key)
    if form is None:
        form = _form(operator, needed, bound)
        if len(operator.gradient_forms) < _MOST_FORMS:
            operator.gradient_forms[key] = form
    return form


def _form(operator: Operator, needed: int, bound: tuple[Any, ...]) -> GradientForm:
    positions = operator.grad_positions
    chosen = {p: operator.derivatives[p] for p in positions if needed >> p & 1 and p in operator.derivatives}
    together = operator.derivatives.get(TOGETHER) if len(chosen) > 1 else None
    formulas = [together] if together else list(chosen.values())
    named = list(dict.fromkeys([source for derivative in formulas for source in derivative.sources]))
    saved = [source for source in named if _is_saved(source, chosen.values(), bound)]
    fixed = [source for source in named if source[0] in _FIXED and source not in saved]
    places = {source: place for place, source in enumerate([*fixed, *saved])}
    return GradientForm(
        fixed,
        saved,
        saves=tuple([number for where, number in saved if where == "arg"]),
        saves_outs=tuple([(at, number) for at, (where, number) in enumerate(saved) if where == "out"]),
        names_grads=("grads", 0) in named,
        reads=frozenset([number for derivative in formulas for number in derivative.reads]),
        numbers=frozenset([p for p in positions if bound[p].__class__ not in (Meta, tuple)]),
        mask=tuple([p in chosen for p in positions]),
        joint=_picked(together, places) if together else None,
        inputs=tuple([(p, *_picked(chosen.get(p), places)) for p in positions]),
    )


def _is_saved(source: Source, chosen: Iterable[Derivative], bound: tuple[Any, ...]) -> bool:
    """Whether a formula's argument is saved: it is a result, or a tensor that a wanted gradient's own formula names."""
    where, number = source
    if where != "arg":
        return where == "out"
    return bound[number].__class__ in (Meta, tuple) and any(number in derivative.saves_args for derivative in chosen)


def _picked(derivative: Derivative | None, places: dict[Source, int]) -> Picked:
    if derivative is None:
        return None, _pick([])
    return derivative.formula, _pick([_place(source, places) for source in derivative.sources])


def _place(source: Source, places: dict[Source, int]) -> int:
    where, number = source
    if where == "grads":
        return -1
    return len(places) + number if where in ("grad", "grad_out") else places[source]


def _pick(indices: list[int]) -> Pick:
    if len(indices) > 1:
        return itemgetter(*indices)
    return itemgetter(slice(indices[0], indices[0] + 1 or None) if indices else slice(0))
