"""``symbolic_shapes``: questions about sizes, which are numbers here, and classes that programs name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from telegrad._programs.private.symbols import SymBool as SymBool
from telegrad._programs.private.symbols import SymFloat as SymFloat
from telegrad._programs.private.symbols import SymInt as SymInt


class GuardOnDataDependentSymNode(RuntimeError):
    """A function that is traced without elements decides by them."""


class ConstraintViolationError(RuntimeError):
    """Is never raised: sizes are numbers."""


class DimDynamic(Enum):
    """How a dimension is taken by a compiler; every size is a number here."""

    DYNAMIC = 0
    DUCK = 1
    STATIC = 2
    SIZE_LIKE_UNBACKED = 3
    INFER_STRIDE = 4
    UNBACKED = 5


@dataclass(frozen=True)
class StatelessSymbolicContext:
    """How the dimensions of a tensor are to be taken."""

    dynamic_sizes: Sequence[DimDynamic]
    constraint_sizes: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class ShapeEnv:
    """What would know of sizes without numbers: there are none, so that it knows nothing."""

    def __init__(self, **options: Any) -> None:
        self.guards: list[Any] = []
        self.var_to_val: dict[Any, Any] = {}

    def freeze(self) -> None:
        """Do nothing."""

    def format_guards(self, verbose: bool = False) -> str:
        """Return nothing: no size has a condition."""
        return ""


def _number(a: Any, *args: Any, **options: Any) -> Any:
    """Return a size, which is a number."""
    return a


guard_int = guard_float = guard_scalar = hint_int = size_hint = _number


def guard_bool(a: Any) -> bool:
    """Return whether something about sizes is so."""
    return bool(a)


guard_size_oblivious = guard_or_false = guard_or_true = statically_known_true = optimization_hint_bool = guard_bool


def statically_known_false(x: Any) -> bool:
    """Return whether something about sizes is not so."""
    return not x


def sym_eq(x: Any, y: Any) -> bool:
    """Return whether sizes, or lists of them, are equal."""
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        return len(x) == len(y) and all(map(sym_eq, x, y))
    return bool(x == y)


def sym_and(x: Any, *others: Any) -> bool:
    """Return whether all of these hold."""
    return bool(x) and all(others)


def sym_or(x: Any, *others: Any) -> bool:
    """Return whether any of these holds."""
    return bool(x) or any(others)


def is_concrete_int(a: Any) -> bool:
    """Whether a size is a number: it is."""
    return isinstance(a, int)


is_concrete_bool = is_concrete_float = is_concrete_int


def _no_symbols(val: Any) -> set[Any]:
    """Return the symbols in sizes: there are none."""
    return set()


free_symbols = free_unbacked_symbols = _no_symbols


def has_free_symbols(val: Any) -> bool:
    """Whether there is a symbol among sizes: there is none."""
    return False


has_free_unbacked_symbols = has_symbolic_sizes_strides = is_symbolic = is_symbol_binding_fx_node = has_free_symbols


def constrain_range(a: Any, *, min: int | None, max: int | None = None) -> None:
    """Raise ValueError for a number outside of a range."""
    if (min is not None and a < min) or (max is not None and a > max):
        raise ValueError(f"Invalid value {a} for range [{min}:{max}]")


def constrain_unify(a: Any, b: Any) -> None:
    """Raise ValueError for numbers that are not the same."""
    if a != b:
        raise ValueError(f"{a} and {b} are to be the same")
