"""Where parameters and samples of distributions may lie. ``check`` tells for each element of a batch."""

from __future__ import annotations

from typing import Any

from telegrad._ops.functions import function

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than",
    "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
    "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square",
    "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A region; its last ``event_dim`` dimensions make one value."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Any:
        """Return whether values lie in the region, without their event dimensions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Dependent(Constraint):
    """A region that depends on other parameters."""

    def __init__(self, *, is_discrete: Any = False, event_dim: Any = 0) -> None:
        self.is_discrete = is_discrete
        self.event_dim = event_dim

    def __call__(self, *, is_discrete: bool | None = None, event_dim: int | None = None) -> _Dependent:
        return _Dependent(
            is_discrete=self.is_discrete if is_discrete is None else is_discrete,
            event_dim=self.event_dim if event_dim is None else event_dim,
        )

    def check(self, value: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property, _Dependent):
    """A property of a distribution that gives a region; the class itself has one that depends."""

    def __init__(self, fn: Any = None, *, is_discrete: Any = False, event_dim: Any = 0) -> None:
        super().__init__(fn)
        self.is_discrete = is_discrete
        self.event_dim = event_dim

    def __call__(self, fn: Any) -> dependent_property:  # type: ignore[override]
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Bounded(Constraint):
    """Values between two bounds, ``lower_bound`` and ``upper_bound``; it has no attribute where there is no bound."""

    includes = (True, True)
    is_integer = False

    def check(self, value: Any) -> Any:
        ok: Any = (value % 1 == 0) if self.is_integer else (value == value)
        lower, upper = self._bounds()
        if lower is not None:
            ok = ok & (value >= lower if self.includes[0] else value > lower)
        if upper is not None:
            ok = ok & (value <= upper if self.includes[1] else value < upper)
        return ok

    def _bounds(self) -> tuple[Any, Any]:
        return getattr(self, "lower_bound", None), getattr(self, "upper_bound", None)

    def __repr__(self) -> str:
        bounds = zip(("lower_bound", "upper_bound"), self._bounds())
        given = ", ".join(f"{name}={value}" for name, value in bounds if value is not None)
        return f"{type(self).__name__.lstrip('_')}({given})"


class _Interval(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__()
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound


class _IntegerInterval(_Interval):
    is_discrete = is_integer = True


class _HalfOpenInterval(_Interval):
    includes = (True, False)


class _GreaterThan(_Bounded):
    includes = (False, True)

    def __init__(self, lower_bound: Any) -> None:
        super().__init__()
        self.lower_bound = lower_bound


class _GreaterThanEq(_GreaterThan):
    includes = (True, True)


class _IntegerGreaterThan(_GreaterThanEq):
    is_discrete = is_integer = True


class _LessThan(_Bounded):
    includes = (True, False)

    def __init__(self, upper_bound: Any) -> None:
        super().__init__()
        self.upper_bound = upper_bound


class _Real(_Bounded):
    def __repr__(self) -> str:
        return "Real()"


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        super().__init__()
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Matrix(Constraint):
    event_dim = 2


class _LowerTriangular(_Matrix):
    def check(self, value: Any) -> Any:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Any) -> Any:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Any) -> Any:
        tolerance = (1.2e-7 if value.dtype.itemsize < 8 else 2.3e-16) * value.shape[-1] * 10
        norms = (value * value).sum(-1).sqrt()
        return super().check(value) & ((norms - 1).abs() < tolerance).all(-1)


class _Square(_Matrix):
    def check(self, value: Any) -> Any:
        return function("full")(value.shape[:-2], value.shape[-2] == value.shape[-1], device=value.device)


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        return ((value - value.mT).abs() <= 1e-6 + 1e-5 * value.mT.abs()).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        return super().check(value) & (function("linalg_eigvalsh")(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        return super().check(value) & (function("linalg_eigvalsh")(value) > 0).all(-1)


class MixtureSameFamilyConstraint(Constraint):
    """The region that the components of a mixture share."""

    def __init__(self, base_constraint: Any) -> None:
        super().__init__()
        self.base_constraint = base_constraint
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim

    def check(self, value: Any) -> Any:
        ok = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return ok.all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _IndependentConstraint(Constraint):
    """A region whose values are whole blocks of values of another one."""

    def __init__(self, base_constraint: Any, reinterpreted_batch_ndims: int) -> None:
        super().__init__()
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.is_discrete = base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        ok = self.base_constraint.check(value)
        return ok.flatten(-self.reinterpreted_batch_ndims).all(-1) if self.reinterpreted_batch_ndims else ok

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class _Joined(Constraint):
    """Regions of parts of a tensor along one dimension."""

    def __init__(self, cseq: Any, dim: int = 0, lengths: Any = None) -> None:
        super().__init__()
        self.cseq = list(cseq)
        self.dim = dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        self.is_discrete = any(part.is_discrete for part in self.cseq)
        self.event_dim = max(part.event_dim for part in self.cseq)


class _Cat(_Joined):
    def check(self, value: Any) -> Any:
        parts = value.split(self.lengths, self.dim)
        return function("cat")([part.check(v) for part, v in zip(self.cseq, parts)], self.dim)


class _Stack(_Joined):
    def check(self, value: Any) -> Any:
        parts = value.unbind(self.dim)
        return function("stack")([part.check(v) for part, v in zip(self.cseq, parts)], self.dim)


def is_dependent(constraint: Any) -> bool:
    """Whether a region depends on other parameters."""
    return isinstance(constraint, _Dependent)


dependent = _Dependent()
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = _IndependentConstraint(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
independent = _IndependentConstraint
cat = _Cat
stack = _Stack
