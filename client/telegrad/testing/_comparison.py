"""Comparisons of tensors, numbers, and sequences and mappings of them, that say where and by how much they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .._functions.creation import as_tensor
from .._tensor.tensor import Tensor
from ._differences import Rules, difference_of_numbers, difference_of_tensors

_NUMBERS: Final = (bool, int, float, complex)


def assert_close(
    actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
    check_stride: bool = False, msg: str | Callable[[str], str] | None = None,
) -> None:  # fmt: skip
    """Raise AssertionError unless ``abs(actual - expected) <= atol + rtol * abs(expected)`` for every element.

    The arguments are tensors, NumPy arrays or numbers, or sequences or mappings of these. The tolerances depend on the
    dtype unless both are given. ``msg`` replaces the error's message, or is called with it and returns another.

    Raises AssertionError too where shapes, dtypes or devices differ; ValueError where one tolerance is given alone.
    """
    if (rtol is None) != (atol is None):
        missing, given = ("rtol", "atol") if rtol is None else ("atol", "rtol")
        raise ArgumentError(f"assert_close: {given} is given and {missing} is not; give both or neither")
    tolerance = None if rtol is None or atol is None else (rtol, atol)
    rules = Rules(tolerance, equal_nan, check_device, check_dtype, check_stride, check_layout)
    message = _difference(actual, expected, rules, allow_subclasses, "")
    if message:
        raise AssertionError(msg(message) if callable(msg) else msg or message)


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True,
    msg: str = "",
) -> None:  # fmt: skip
    """Compare as ``assert_close`` does, with no regard to dtypes and devices; PyTorch keeps it for old programs."""
    actual, expected = (x if isinstance(x, Tensor) else as_tensor(x) for x in (actual, expected))
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False,
        msg=msg or None,
    )  # fmt: skip


def _difference(actual: Any, expected: Any, rules: Rules, allow_subclasses: bool, place: str) -> str:
    """Return what differs, and at which item; empty if nothing does."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return _difference_of_mappings(actual, expected, rules, allow_subclasses, place)
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return _at(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", place)
        pairs = enumerate(zip(actual, expected, strict=True))
        return next(
            filter(None, (_difference(a, b, rules, allow_subclasses, f"{place}[{index}]") for index, (a, b) in pairs)),
            "",
        )
    if actual is None and expected is None:
        return ""
    related = allow_subclasses and (isinstance(actual, type(expected)) or isinstance(expected, type(actual)))
    if type(actual) is type(expected) or (related and not isinstance(actual, _NUMBERS)):
        if isinstance(actual, (np.ndarray, np.generic)):
            actual, expected = as_tensor(actual), as_tensor(expected)
        if isinstance(actual, Tensor):
            return _at(difference_of_tensors(actual, expected, rules), place)
        if isinstance(actual, _NUMBERS):
            return _at(difference_of_numbers(actual, expected, rules), place)
    elif isinstance(actual, _NUMBERS) and isinstance(expected, _NUMBERS):
        if rules.check_dtype:
            return _at(f"The (d)types do not match: {type(actual)} != {type(expected)}.", place)
        return _at(difference_of_numbers(actual, expected, rules), place)
    raise ArgumentTypeError(
        f"assert_close: cannot compare {type(actual).__name__} with {type(expected).__name__}{place}"
    )


def _difference_of_mappings(
    actual: Mapping[Any, Any], expected: Mapping[Any, Any], rules: Rules, allow_subclasses: bool, place: str
) -> str:
    if actual.keys() != expected.keys():
        missing, additional = (
            sorted(a.keys() - b.keys(), key=str) for a, b in ((expected, actual), (actual, expected))
        )
        return _at(
            f"The keys of the mappings do not match:\nMissing keys in the actual mapping: {missing}\n"
            f"Additional keys in the actual mapping: {additional}", place,
        )  # fmt: skip
    pairs = ((key, actual[key], expected[key]) for key in expected)
    return next(
        filter(None, (_difference(a, b, rules, allow_subclasses, f"{place}[{key!r}]") for key, a, b in pairs)), ""
    )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _at(message: str, place: str) -> str:
    return f"{message}\n\nThe failure occurred for item {place}" if message and place else message
