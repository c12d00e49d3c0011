"""Functions to compile: a builder makes a function with its state and its inputs, for eager and for compiled calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.draws import drawn

ROWS = (3, 3, 3, 3, 3, 4, 3, 4, 4, 4, 4, 3, 2)
"""Rows of the batch by call: a shape that is met again and again, and others in between."""


class Built(NamedTuple):
    """A function with its own state: ``arguments`` makes what a call is given, ``state`` returns what it changes."""

    function: Callable[..., Any]
    arguments: Callable[[int, np.random.Generator], tuple[Any, ...]]
    state: Callable[[], Any] = tuple


class Case(NamedTuple):
    """What builds a function. With a ``tolerance`` compiled results may differ so much from eager ones, relatively."""

    build: Callable[[Any], Built]
    calls: int
    tolerance: float

    @property
    def name(self) -> str:
        """The name that the test has."""
        return self.build.__name__


CASES: list[Case] = []
"""All cases, in the order in which their modules define them."""


def case(calls: int = 8, tolerance: float = 0.0) -> Callable[[Callable[[Any], Built]], Callable[[Any], Built]]:
    """Return a decorator that adds what builds a function to the cases."""

    def add(build: Callable[[Any], Built]) -> Callable[[Any], Built]:
        CASES.append(Case(build, calls, tolerance))
        return build

    return add


def drawn_cases(count: int) -> list[Any]:
    """Return the cases as parameters for tests that the default suite makes of a few; ``test_functions`` has all."""
    return drawn([pytest.param(case, id=case.name) for case in CASES], count)


def batch(tg: Any, columns: int = 4, **options: Any) -> Callable[[int, np.random.Generator], tuple[Any, ...]]:
    """Return what makes one tensor of random numbers for each call, with ``ROWS`` rows."""

    def arguments(number: int, rng: np.random.Generator) -> tuple[Any, ...]:
        array = rng.standard_normal((ROWS[number % len(ROWS)], columns)).astype("f")
        return (tg.tensor(array, **options),)

    return arguments


def exactly(tg: Any, result: Any) -> Any:
    """Return nested lists that are equal for results that are equal to the bit, of the same types and histories."""
    if isinstance(result, tg.Tensor):
        kept = result.detach().clone() if result.layout is tg.strided else result.detach().to_dense()
        array = (kept.float() if kept.dtype in (tg.bfloat16, tg.float16) else kept).numpy()
        return [str(result.dtype), tuple(result.shape), result.requires_grad, result.is_leaf, Elements(array)]
    if isinstance(result, dict):
        return {key: exactly(tg, value) for key, value in result.items()}
    if isinstance(result, (tuple, list)):
        return [type(result).__name__, *[exactly(tg, item) for item in result]]
    if hasattr(result, "__dataclass_fields__"):
        return exactly(tg, vars(result))
    return result


class Elements:
    """The elements of a tensor, which are equal to others by their bytes; or within ``tolerance`` times the largest."""

    tolerance = 0.0

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Elements):
            return NotImplemented
        if self.tolerance:
            size = np.abs(other.array).max(initial=1.0)
            return np.allclose(self.array, other.array, rtol=self.tolerance, atol=self.tolerance * size, equal_nan=True)
        return self.array.tobytes() == other.array.tobytes()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.array)


def outcome(tg: Any, built: Built, arguments: tuple[Any, ...], function: Callable[..., Any]) -> Any:
    """Call the function; return what it returns or raises, and the state that it leaves."""
    try:
        result = function(*arguments)
    except (ValueError, RuntimeError, KeyError, IndexError) as error:
        result = f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        told = exactly(tg, result)
    except (ValueError, RuntimeError, IndexError) as error:  # it comes with the first read
        told = f"{type(error).__name__}: {error}".splitlines()[0]
    return [told, exactly(tg, built.state())]
