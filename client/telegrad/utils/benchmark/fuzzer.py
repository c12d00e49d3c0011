"""Random inputs for measurements: numbers by their distributions, and tensors whose sizes these numbers are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from telegrad._ops.functions import function
from telegrad._tensor.tensor import Tensor
from telegrad.random import manual_seed
from telegrad_protocol.dtypes import DType, float32
from telegrad_protocol.errors import ArgumentError

Parameters: TypeAlias = dict[str, Any]
_ATTEMPTS: Final = 1000


class ParameterAlias:
    """Stands for the value of another parameter."""

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


class FuzzedParameter:
    """A number between two bounds, ``uniform`` or ``loguniform``, or one of a dict's keys by their probabilities.

    A ``strict`` one keeps its value while the other parameters are drawn again.
    """

    def __init__(
        self, name: str, minval: float | None = None, maxval: float | None = None,
        distribution: str | dict[Any, float] | None = None, strict: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(distribution, dict):
            shares = distribution.values()
            if min(shares, default=0) < 0 or abs(sum(shares) - 1) > 1e-5:
                raise ArgumentError(f"FuzzedParameter: probabilities are positive and sum to one, not {list(shares)}")
            if minval is not None or maxval is not None:
                raise ArgumentError("FuzzedParameter: a dict of probabilities has no minval and maxval")
        elif distribution not in ("uniform", "loguniform"):
            raise ArgumentError(f"FuzzedParameter: unknown distribution: {distribution}")
        elif minval is None or maxval is None:
            raise ArgumentError(f"FuzzedParameter: {distribution} needs minval and maxval")
        self.name, self.strict = name, strict
        self._bounds: Any = minval, maxval
        self._distribution = distribution

    def sample(self, state: np.random.RandomState) -> Any:
        """Return a value drawn from a generator of NumPy's."""
        low, high = self._bounds
        if isinstance(self._distribution, dict):
            return [*self._distribution][state.choice(len(self._distribution), p=[*self._distribution.values()])]
        if self._distribution == "loguniform":
            return min(max(int(2 ** state.uniform(np.log2(low), np.log2(high))), low), high)
        if isinstance(low, int) and isinstance(high, int):
            return int(state.randint(low, high + 1))
        return state.uniform(low, high)


class FuzzedTensor:
    """A tensor whose sizes are numbers or names of parameters, in a random order in memory, with steps between."""

    def __init__(
        self, name: str, size: Sequence[str | int], steps: Sequence[str | int] | None = None,
        probability_contiguous: float = 0.5, min_elements: int | None = None, max_elements: int | None = None,
        max_allocation_bytes: int | None = None, dim_parameter: str | None = None, roll_parameter: str | None = None,
        dtype: DType = float32, cuda: bool = False, tensor_constructor: Callable[..., Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._size, self._steps, self._dim_parameter = size, steps or (), dim_parameter
        self._probability_contiguous = probability_contiguous
        self._least, self._most, self._most_bytes = min_elements, max_elements, max_allocation_bytes
        self._dtype, self._cuda = dtype, cuda
        self._constructor = tensor_constructor or self.default_tensor_constructor

    @staticmethod
    def default_tensor_constructor(size: tuple[int, ...], dtype: DType, **kwargs: Any) -> Tensor:
        """Return random elements of a type on the host: in [0, 1), or whole numbers from 1 to 126."""
        if dtype.is_floating_point or dtype.is_complex:
            return function("rand")(size, dtype=dtype, device="cpu")  # type: ignore[no-any-return]
        return function("randint")(1, 127, size, dtype=dtype, device="cpu")  # type: ignore[no-any-return]

    def satisfies_constraints(self, params: Parameters) -> bool:
        """Whether the tensor that these parameters give has as many elements and bytes as it may have."""
        size, steps = self._layout(params)
        count = math.prod(size)
        held = count * math.prod(steps) * self._dtype.itemsize
        limits = ((self._least, count), (count, self._most), (held, self._most_bytes))
        return all(low is None or high is None or low <= high for low, high in limits)

    def make(self, params: Parameters, state: np.random.RandomState) -> tuple[Tensor, dict[str, Any]]:
        """Return the tensor that parameters give, and what is told of it."""
        size, steps = self._layout(params)
        held = tuple(length * step for length, step in zip(size, steps, strict=True))
        made = self._constructor(size=held, dtype=self._dtype, **params)
        made = made.cuda() if self._cuda else made
        order = np.arange(len(size))
        if state.rand() > self._probability_contiguous:
            while len(size) > 1 and (order == np.arange(len(size))).all():
                order = state.permutation(made.dim())
            made = made.permute(*order.tolist()).contiguous().permute(*np.argsort(order).tolist())
        made = made[tuple(slice(0, length, step) for length, step in zip(held, steps, strict=True))]
        told = {"numel": made.numel(), "order": order, "steps": steps, "is_contiguous": made.is_contiguous()}
        return made, told | {"dtype": str(self._dtype)}

    def _layout(self, params: Parameters) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the sizes, and which elements of each dimension are taken: every first, every second and so on."""
        dims = len(self._size) if self._dim_parameter is None else params[self._dim_parameter]
        named: dict[Any, Any] = params
        listed = ([named.get(item, item) for item in items][:dims] for items in (self._size, self._steps))
        size, steps = (tuple(items) + (1,) * (dims - len(items)) for items in listed)
        return size, steps


class Fuzzer:
    """Draws parameters until all constraints hold, and makes the tensors that they give."""

    def __init__(
        self, parameters: Iterable[Any], tensors: Iterable[Any],
        constraints: Sequence[Callable[..., Any]] | None = None,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        self._seed = np.random.RandomState().randint(0, 2**32 - 1, dtype=np.int64) if seed is None else seed
        self._parameters = _unpacked(parameters, FuzzedParameter)
        self._tensors = _unpacked(tensors, FuzzedTensor)
        self._constraints = constraints or ()
        twice = {one.name for one in self._parameters} & {one.name for one in self._tensors}
        if twice:
            raise ArgumentError(f"Duplicate names in parameters and tensors: {twice}")
        self._drawn = self._rejected = 0

    def take(self, n: int) -> Iterator[tuple[dict[str, Tensor], dict[str, Any], Parameters]]:
        """Yield tensors by their names, what is told of each, and the parameters, ``n`` times."""
        state = np.random.RandomState(self._seed)
        manual_seed(int(state.randint(0, 2**63, dtype=np.int64)))
        for _ in range(n):
            params = self._draw(state)
            made = {tensor.name: tensor.make(params, state) for tensor in self._tensors}
            yield {name: pair[0] for name, pair in made.items()}, {name: pair[1] for name, pair in made.items()}, params

    @property
    def rejection_rate(self) -> float:
        """Which part of the parameters drawn was rejected."""
        return self._rejected / self._drawn if self._drawn else 0.0

    def _draw(self, state: np.random.RandomState) -> Parameters:
        kept: Parameters = {}
        for _ in range(_ATTEMPTS):
            drawn = {p.name: kept[p.name] if p.name in kept else p.sample(state) for p in self._parameters}
            kept = {p.name: drawn[p.name] for p in self._parameters if p.strict}
            params = _resolved(drawn)
            self._drawn += 1
            if all(holds(params) for holds in self._constraints) and all(
                tensor.satisfies_constraints(params) for tensor in self._tensors
            ):
                return params
            self._rejected += 1
        raise ArgumentError("Failed to generate a set of valid parameters.")


def _unpacked(given: Iterable[Any], kind: type) -> list[Any]:
    """Return a list whose elements may have come as lists of them."""
    return [one for item in given for one in ([item] if isinstance(item, kind) else item)]


def _resolved(params: Parameters) -> Parameters:
    """Return parameters with the values that aliases stand for."""
    resolved = {}
    for name, value in params.items():
        steps = 0
        while isinstance(value, ParameterAlias):
            steps += 1
            if steps > len(params):
                raise ArgumentError(f"ParameterAlias cycle detected\n{params}")
            value = params[value.alias_to]
        resolved[name] = value
    return resolved
