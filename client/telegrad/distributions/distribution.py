"""The base of all distributions: shapes, checks of parameters, and what follows from ``rsample`` and ``log_prob``."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from functools import cache
from itertools import chain
from typing import Any, Final

from telegrad._session.catching.prompt_errors import check_where_caught
from telegrad._session.grad_mode import no_grad
from telegrad._tensor.size import Size
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from . import constraints
from .utils import as_like, lazy_property


@cache
def _parameters(kind: type) -> tuple[str, ...]:
    return tuple(inspect.signature(kind.__init__).parameters)[1:]  # type: ignore[misc]


class _Unsaid(int):
    """True that the program did not say: what would wait for the server is checked where errors are caught."""

    def __repr__(self) -> str:
        return repr(bool(self))


_UNSAID: Final = _Unsaid(True)


class Distribution:
    """A probability distribution, or a batch of independent ones.

    Parameters given as numbers are checked at once. Those given as tensors are checked where ``validate_args`` is
    True, after ``set_default_validate_args(True)``, and where the program would catch the error: that waits for the
    server, which has the elements.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args: Any = _UNSAID
    _batch_shape: Size
    _event_shape: Size

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        kind: Any = cls
        named = {**dict(zip(_parameters(kind), args)), **kwargs}
        wanted = named.get("validate_args")
        if cls._validate_args if wanted is None else wanted:
            for name, value in named.items():
                constraint = cls._constraints().get(name)
                if (
                    isinstance(value, (int, float)) and isinstance(constraint, constraints._Bounded)
                    and not constraint.check(value)
                ):  # fmt: skip
                    what = f"parameter {name} (Tensor of shape ())"
                    shown = ", ".join([f"{key}: {given}" for key, given in named.items() if key in cls._constraints()])
                    _require(False, what, f"{cls.__name__}({shown})", constraint, value)
        return object.__new__(cls)

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args is not _UNSAID:
            if self._validate_args:
                self._check_parameters()
        else:
            given = [
                name for name, value in vars(self).items() if isinstance(value, Tensor) and value.device.type != "meta"
            ]
            check_where_caught(lambda: self._check_parameters(given))
        super().__init__()  # of what else a program's class is derived from

    @classmethod
    def _constraints(cls) -> dict[str, Any]:
        return cls.arg_constraints if isinstance(cls.arg_constraints, dict) else {}

    def _check_parameters(self, names: Collection[str] | None = None) -> None:
        """Raise ArgumentError where a parameter, one of these if there are ``names``, is not as it has to be."""
        for name, constraint in self.arg_constraints.items():
            is_derived = name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property)
            if names is not None and name not in names:
                continue
            if constraints.is_dependent(constraint) or is_derived:
                continue
            value = getattr(self, name)
            ok = constraint.check(value)
            if not bool(ok.all()):
                text = f"parameter {name} (Tensor of shape {tuple(value.shape)})"
                _require(False, text, repr(self), constraint, value)

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Have distributions made from here on check all parameters, tensors too, or none."""
        if value not in (True, False):
            raise ArgumentError("set_default_validate_args: expected True or False")
        Distribution._validate_args = value

    arg_constraints: Any = {}

    @property
    def support(self) -> Any:
        """Where samples lie."""
        raise NotImplementedError

    @property
    def batch_shape(self) -> Size:
        """How many distributions there are."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return Size((*shape, *self._batch_shape, *self._event_shape))

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """Return what ``expand`` of ``cls`` fills in: the instance, or a bare one where the class adds no rules."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"{type(self).__name__} has an __init__ of its own, so it must have an expand of its own, too, and not "
                f"that of {cls.__name__}"
            )
        return object.__new__(type(self))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """Return the same distributions in a larger batch."""
        new = object.__new__(type(self)) if _instance is None else _instance
        shape, ndim = Size(batch_shape), len(self._batch_shape)
        for name, value in vars(self).items():
            batch = getattr(value, "shape" if isinstance(value, Tensor) else "_batch_shape", None)
            if batch is not None and tuple(batch[:ndim]) == tuple(self._batch_shape):
                value = value.expand((*shape, *batch[ndim:]))
            new.__dict__[name] = value
        new._batch_shape = shape
        return new

    def sample(self, sample_shape: Any = ()) -> Any:
        """Return samples without gradients: ``sample_shape`` of each distribution."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Any:
        """Return ``n`` samples of each distribution."""
        return self.sample((n,))

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Return samples through which gradients flow to the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample; use sample and log_prob")

    def log_prob(self, value: Any) -> Any:
        """Return the logarithm of the density, or of the probability, of values."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Any) -> Any:
        """Return the probability of values up to these."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Any) -> Any:
        """Return the values of which the cumulative probability is this."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def entropy(self) -> Any:
        """Return the entropy of each distribution, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Any:
        """Return the exponential of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Any:
        """Return all values of a discrete distribution along a new first dimension."""
        raise NotImplementedError(f"{type(self).__name__} has no enumerate_support")

    @property
    def mean(self) -> Any:
        """The mean of each distribution."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The most probable value of each distribution."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance of each distribution."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The standard deviation of each distribution."""
        return self.variance.sqrt()

    def _validate_sample(self, value: Any) -> None:
        if not self._validate_args:
            return
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        self._check_shape(value)
        if self._validate_args is not _UNSAID:
            self._check_sample(value)
        elif _has_elements(value):
            check_where_caught(lambda: self._check_sample(value))

    def _check_shape(self, value: Tensor) -> None:
        event, ndim = tuple(self._event_shape), len(self._event_shape)
        if tuple(value.shape[value.ndim - ndim :]) != event:
            raise ArgumentError(
                f"The right-most size of value must match event_shape: {tuple(value.shape)} vs {tuple(event)}."
            )
        shape = (*self._batch_shape, *event)
        if any(1 != given != own != 1 for given, own in zip(reversed(value.shape), reversed(shape))):
            raise ArgumentError(
                f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {Size(shape)}."
            )

    def _check_sample(self, value: Tensor) -> None:
        ok = self.support.check(value)
        if not bool(ok.all()):
            text = f"value argument (Tensor of shape {tuple(value.shape)})"
            raise ArgumentError(
                f"Expected {text} to be within the support ({self.support!r}) of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def _like(self, value: Any) -> Any:
        """Return a value as a tensor like the first parameter; one that is a module too may have them as buffers."""
        parameters = chain(vars(self).values(), (getattr(self, name, None) for name in self.arg_constraints))
        return as_like(value, next(v for v in parameters if isinstance(v, Tensor)))

    def __repr__(self) -> str:
        names = [name for name in self.arg_constraints if name in self.__dict__]
        shown = [(name, self.__dict__[name]) for name in names]
        values = [f"{n}: {v if v.numel() == 1 else v.shape}" for n, v in shown if isinstance(v, Tensor)]
        return f"{type(self).__name__}({', '.join(values)})"


def _has_elements(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type != "meta"


def _require(ok: Any, what: str, distribution: str, constraint: Any, value: Any) -> None:
    if not ok:
        raise ArgumentError(
            f"Expected {what} of distribution {distribution} to satisfy the constraint {constraint!r}, "
            f"but found invalid values:\n{value}"
        )


class ExponentialFamily(Distribution):
    """Distributions whose density is the exponential of a product of parameters and statistics."""
