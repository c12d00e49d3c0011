"""Operators: what implements each contract, and what was worked out for earlier calls of it.

``registry`` enters kernels by dispatch key, derivative formulas and composites; the derived forms of an operation
(in-place, ``out=``) share those of its base. Knows neither dispatch nor plans.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import PUBLIC, TABLE, Op

from .replay.remembered import forget_all, new_table
from .value import Backend, Launch, Value

Kernel: TypeAlias = Callable[..., Any]
Formula: TypeAlias = Callable[..., Any]
Run: TypeAlias = Callable[[tuple[Any, ...]], Any]
"""Executes an operation on bound arguments of one signature."""
Signature: TypeAlias = tuple[Any, ...]
"""All that decides how a call is executed, dispatch keys aside: metas of tensors, and attributes."""
CacheKey: TypeAlias = tuple[Any, ...]
"""A signature together with dispatch keys, in the form that one lookup makes."""


class KernelInfo:
    """A kernel, and the arguments that it asks for by the names of its parameters.

    ``out``: it writes into preallocated results; ``generator``: it draws random numbers; ``meta``: it wants the
    result's meta(s). ``movement``: it only moves elements, so half precision needs no detour through float32.
    ``updates``: it changes some elements of its first operand only, so that in place ``out`` may be that operand.
    """

    __slots__ = ("function", "movement", "updates", "wants_generator", "wants_meta", "wants_out")

    def __init__(self, function: Kernel, movement: bool, updates: bool = False) -> None:
        names = inspect.signature(function).parameters
        self.function = function
        self.movement = movement
        self.updates = updates
        self.wants_out = "out" in names
        self.wants_generator = "generator" in names
        self.wants_meta = "meta" in names


class Request(NamedTuple):
    """What a factory of prepared kernels gets, once per plan: an operation on operands of given metas.

    ``args`` are the base operation's arguments: values replaced by their metas, Python integers as the computing type
    holds them. What is not a tensor must be taken from here; it is part of what the plan is kept by. ``outs`` are the
    metas of where results go: new and row-major as the contract says, or the target of an in-place or ``out=`` form.
    ``compute`` is the type that the contract's promotion works in; None where the operation does not promote.
    """

    op: Op
    backend: Backend
    args: tuple[Any, ...]
    outs: tuple[Meta, ...]
    compute: DType | None
    reads_numbers: bool = False
    """Whether floats that vary (``replay.varying``) are others in each call, so that launches must read them there."""
    is_in_place: bool = False
    """Whether the result is written over the first operand, of which all that is not changed stays."""

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by the names of their parameters, in the order in which launches get them."""
        return {p.name: arg for p, arg in zip(self.op.params, self.args, strict=True)}


Factory = Callable[[Request], "Launch | None"]
Finder = Callable[[Request, Run], "Run | None"]


class Single(NamedTuple):
    """The one operation that a composite comes to on operands of given metas.

    ``bind`` makes its arguments of those of the composite, where they are others. ``place`` is the number of the result
    that the composite returns, or the slice of those; None where it returns all of them.
    """

    operator: Operator
    bind: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    place: int | slice | None = None


class Preparer:
    """A factory of prepared kernels, with the flags that ``registry.prepares`` explains."""

    __slots__ = ("converts", "deferrable", "deferrable_unchecked", "elementwise", "factory", "reads_numbers")

    def __init__(
        self, factory: Factory, elementwise: bool, deferrable: bool, converts: bool, reads_numbers: bool = False,
        deferrable_unchecked: bool = False,
    ) -> None:  # fmt: skip
        self.factory = factory
        self.elementwise = elementwise
        self.deferrable = deferrable
        self.deferrable_unchecked = deferrable_unchecked
        self.converts = converts
        self.reads_numbers = reads_numbers


class Derivative:
    """One derivative formula; its parameter names say what must be saved for it.

    ``sources`` is a list of ``(where, position)``: ``grad`` and ``grads``, ``out`` number, ``arg`` number, the ``meta``
    of an argument (named ``<argument>_meta``), or ``wanted``, whether each differentiable argument's gradient is asked
    for. ``reads`` has the numbers of the results for whose gradients the formula gets zeros where none has reached
    them; a parameter with a default gets None.
    """

    __slots__ = ("formula", "reads", "saves_args", "saves_outs", "sources")

    def __init__(self, op: Op, formula: Formula) -> None:
        self.formula = formula
        parameters = inspect.signature(formula).parameters
        self.sources = [_source(op, name) for name in parameters]
        required = [source for source, p in zip(self.sources, parameters.values(), strict=True) if p.default is p.empty]
        self.reads = frozenset([number for where, number in required if where in ("grad", "grad_out")])
        tensors = set(op.tensor_positions)
        self.saves_args = frozenset(p for where, p in self.sources if where == "arg" and p in tensors)
        self.saves_outs = frozenset(p for where, p in self.sources if where == "out")


def _source(op: Op, name: str) -> tuple[str, int]:
    if name in ("grad", "grads", "wanted"):
        return name, 0
    if name == "out":
        return "out", 0
    if name in op.returns:
        return "out", op.returns.index(name)
    if name.startswith("grad_") and name[5:] in op.returns:
        return "grad_out", op.returns.index(name[5:])
    names = [p.name for p in op.params]
    if name in names:
        return "arg", names.index(name)
    if name.endswith("_meta") and name[:-5] in names:
        return "meta", names.index(name[:-5])
    raise TypeError(f"derivative of {op.name}: no input, attribute or result is called {name!r}")


_TENSORS = ("tensor", "tensor?", "tensor|scalar", "tensor|scalar?")
_ONE_CLASS = frozenset(("int", "bool", "str", "size", "int|size", "dtype", "device"))
_CANONICAL: dict[str, tuple[type, ...]] = {
    "tensor": (Value,), "tensor|scalar": (Value, bool, int, float, complex), "scalar": (bool, int, float, complex),
    "int": (int,), "float": (float,), "bool": (bool,), "str": (str,), "int|size": (int, tuple), "dtype": (DType,),
    "device": (Device,), "size": (tuple,),
}  # fmt: skip


def _canonical(kind: str) -> frozenset[type]:
    """Classes whose instances a parameter takes unchanged, tuples only if they hold nothing but integers.

    Instances of other classes are normalized by the contract first.
    """
    absent = (type(None),) if kind.endswith("?") and kind != "tensors?" else ()
    return frozenset((*_CANONICAL.get(kind.removesuffix("?"), ()), *absent))


class Operator:
    """An operation in the engine: its contract, what implements it, and what was worked out for earlier calls.

    Each kind of thing that is kept has a table of its own. Keys come from clients, so tables are bounded: `remember`.
    All but those of ``lookups`` contain the domain, so that no tenant is faster because another has made a call.
    """

    __slots__ = (
        "accepted", "canonical", "castings", "checked", "comes_to", "composite", "defaults", "derivatives",
        "finders", "first_attribute", "grad_positions", "gradient_forms", "is_unary", "kernels", "keyword_names",
        "leading_tensors", "lookups", "made_first", "middle_is_plain", "op", "overwriters", "plans", "preparers",
        "reads_numbers", "resolved", "runs", "scalar_attributes", "singles", "transfers",
    )  # fmt: skip

    def __init__(self, op: Op, base: Operator | None = None) -> None:
        self.op = op
        self.kernels: dict[int, KernelInfo] = base.kernels if base else {}
        self.preparers: dict[int, list[Preparer]] = base.preparers if base else {}
        self.overwriters: dict[int, Factory] = base.overwriters if base else {}
        """By backend key, the factory of kernels that may write the first of several results over the first operand."""
        self.reads_numbers = 0
        """The keys of the backends whose launches can read floats in each call: see ``replay.varying``."""
        self.transfers: dict[int, Factory] = base.transfers if base else {}
        """By backend key, the factory for operands on another device."""
        self.finders: dict[int, Finder] = {}
        """By backend key, the factory of runs whose results' shapes only data can tell: see ``registry.finds``."""
        self.derivatives: dict[int, Derivative] = base.derivatives if base else {}
        self.made_first: frozenset[int] = frozenset()
        """The arguments whose gradients ``registry.implements`` has made first where memory is short."""
        self.composite: Callable[..., Any] | None = None
        self.comes_to: Callable[..., Single | None] | None = None
        """Tells the one operation that the composite is on operands of given metas: see ``registry.comes_to``."""
        self.grad_positions = tuple(p for p in op.tensor_positions if p not in op.no_grad and op.differentiable)
        self.keyword_names = tuple(p.name for p in op.params[op.positional :])
        self.defaults = tuple(p.default for p in op.params)
        self.canonical = tuple(_canonical(p.kind.name) for p in op.params)
        self.resolved: dict[int, Callable[..., Any]] = {}
        """The kernel that runs, by key set."""
        self.plans: dict[Signature, Any] = new_table()
        """The ``plan.Plan`` of a backend kernel, by signature."""
        self.checked: dict[Signature, None] = new_table()
        """Signatures of calls of a composite that have passed its shape rule."""
        self.singles: dict[tuple[Signature, int], Run] = new_table()
        """What runs a composite that updates leaves, or the operation that it comes to, by signature and key set."""
        self.castings: dict[Signature, Any] = new_table()
        """What autocast does to a call, by signature and mode."""
        self.runs: dict[CacheKey, Run] = new_table()
        """The specialised function that executes a call, by the keys that lookups make."""
        self.lookups: dict[tuple[type, ...], Run] = new_table()
        """How `dispatch` finds a run, by the classes of the arguments."""
        self.gradient_forms: dict[tuple[Any, ...], Any] = {}
        """What derivatives need of a call, by the wanted gradients and the classes of the arguments."""
        self.accepted: dict[tuple[type, ...], tuple[int, ...]] = {}
        """Classes of positional arguments that were canonical, with the positions of sizes among them."""
        self._plan_signature(op)

    def _plan_signature(self, op: Op) -> None:
        """Work out how ``signature_of`` reads arguments.

        The first ``leading_tensors`` are tensors, numbers in their place, or absent. Tensors and lists of them come
        before ``first_attribute``; ``middle_is_plain`` tells of each argument between the two whether equal ones mean
        the same, which the scalars 1, 1.0 and True do not. ``scalar_attributes`` are positions of scalars after that.
        """
        kinds = [p.kind.name for p in op.params]
        plain = [kind.removesuffix("?") in _ONE_CLASS for kind in kinds]
        count = len(kinds)
        leading = next((p for p, kind in enumerate(kinds) if kind not in _TENSORS), count)
        self.leading_tensors = 0 if op.updates else leading
        self.first_attribute = count if op.updates else max(op.tensor_positions, default=-1) + 1
        self.middle_is_plain = tuple(plain[self.leading_tensors : self.first_attribute])
        self.scalar_attributes = tuple(p for p in range(self.first_attribute, count) if not plain[p])
        self.is_unary = kinds[:1] == ["tensor"] and self.first_attribute == 1 and not self.scalar_attributes

    @property
    def has_implementation(self) -> bool:
        """Whether a kernel, a composite, or the engine's own views can execute the operation."""
        return bool(self.kernels or self.composite or self.op.view_of is not None)

    def _caches(self) -> dict[str, dict[Any, Any]]:
        return {name: getattr(self, name) for name in ("plans", "checked", "singles", "castings", "runs", "lookups")}

    def cache_sizes(self) -> dict[str, int]:
        """How many entries each table of what was worked out for calls has."""
        return {name: len(table) for name, table in self._caches().items()}

    def clear_caches(self) -> None:
        """Forget what was worked out for calls, as after a change of what implements the operation."""
        for table in self._caches().values():
            forget_all(table)
        self.gradient_forms.clear()

    def __repr__(self) -> str:
        return f"<operator {self.op.name}>"


TOGETHER = -1
"""The key in ``Operator.derivatives`` of the formula that gives all gradients at once."""
OPERATORS: dict[str, Operator] = {}
BY_INDEX: list[Operator] = []
for _op in TABLE.values():
    OPERATORS[_op.name] = Operator(_op, OPERATORS[_op.base.name] if _op.base is not _op else None)
    BY_INDEX.append(OPERATORS[_op.name])


def overloads(public: str) -> list[Operator]:
    """The operators that have one public name, in declared order."""
    return [OPERATORS[op.name] for op in PUBLIC[public]]
