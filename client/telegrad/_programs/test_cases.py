"""``torch.testing._internal.common_utils``: what packages' own tests import of it, such as its ``TestCase``."""

from __future__ import annotations

import random
import sys
import unittest
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import product
from typing import Any, Final

import numpy as np

from telegrad._functions.creation import as_tensor
from telegrad._tensor.tensor import Tensor
from telegrad.random import fork_rng, manual_seed
from telegrad.testing import assert_close
from telegrad.testing import make_tensor as make_tensor

SEED: Final = 1234
IS_LINUX, IS_WINDOWS, IS_MACOS = (sys.platform == name for name in ("linux", "win32", "darwin"))
run_tests: Final = unittest.main
freeze_rng_state: Final = fork_rng
_NUMBERS: Final = (bool, int, float, complex, np.number, np.bool_)
_ARRAYS: Final = (Tensor, np.ndarray)
_PARTS: Final = "_parametrized_by"


def set_rng_seed(seed: int | None = None) -> None:
    """Seed the generators of the session, of NumPy and of Python."""
    manual_seed(SEED if seed is None else seed)
    random.seed(SEED if seed is None else seed)
    np.random.seed(SEED if seed is None else seed)


class TestCase(unittest.TestCase):
    """A test case that compares tensors, and whatever holds them, within the tolerances of their types."""

    __test__ = False
    precision: float = 0
    rel_tol: float = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__test__ = True

    def setUp(self) -> None:
        """Begin each test with the same random numbers."""
        set_rng_seed()

    def assertEqual(
        self, x: Any, y: Any, msg: Any = None, *, atol: float | None = None, rtol: float | None = None,
        equal_nan: bool = True, exact_dtype: bool = True, exact_device: bool = False, exact_layout: bool = False,
        exact_stride: bool = False, exact_is_coalesced: bool = False,
    ) -> None:  # fmt: skip
        """Fail unless both are equal: tensors, arrays and numbers closely, others exactly, item by item.

        A tensor equals a number or a list of the same elements. Types of elements count with ``exact_dtype``.
        """
        tolerances = self._tolerances(atol, rtol)
        rules = {"equal_nan": equal_nan, "check_dtype": exact_dtype, "check_device": exact_device}
        self._compare(x, y, "", {**tolerances, **rules, "check_stride": exact_stride, "msg": msg})

    def assertNotEqual(self, x: Any, y: Any, msg: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Fail if ``assertEqual`` would not."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, **options)

    def _tolerances(self, atol: float | None, rtol: float | None) -> dict[str, float]:
        """Return both tolerances where one is given, or the case has its own; those of the types otherwise."""
        if atol is None and rtol is None and not self.precision and not self.rel_tol:
            return {}
        return {"atol": max(atol or 0, self.precision), "rtol": max(rtol or 0, self.rel_tol)}

    def _compare(self, x: Any, y: Any, place: str, rules: dict[str, Any]) -> None:
        if isinstance(x, _ARRAYS) or isinstance(y, _ARRAYS):
            self._compare_tensors(x, y, rules)
        elif isinstance(x, Mapping) and isinstance(y, Mapping):
            super().assertEqual(x.keys(), y.keys(), f"keys{place}")
            for key in x:
                self._compare(x[key], y[key], f"{place}[{key!r}]", rules)
        elif _is_list(x) and _is_list(y):
            super().assertEqual(len(x), len(y), f"length{place}")
            for index, (a, b) in enumerate(zip(x, y, strict=True)):
                self._compare(a, b, f"{place}[{index}]", rules)
        elif isinstance(x, _NUMBERS) and isinstance(y, _NUMBERS):
            assert_close(_number(x), _number(y), **{**rules, "check_dtype": False})
        else:
            super().assertEqual(x, y, f"{rules['msg'] or ''}{place}")

    def _compare_tensors(self, x: Any, y: Any, rules: dict[str, Any]) -> None:
        is_exact = all(isinstance(value, (*_ARRAYS, np.generic)) for value in (x, y))
        if not is_exact and not all(isinstance(value, _ARRAYS + _NUMBERS) or _is_list(value) for value in (x, y)):
            self.fail(rules["msg"] or f"{type(x).__name__} is not {type(y).__name__}")
        tensors = [value if isinstance(value, Tensor) else as_tensor(value) for value in (x, y)]
        if not is_exact:
            rules = {**rules, "check_dtype": False}
            if any(isinstance(value, _NUMBERS) for value in (x, y)):
                tensors = [tensor.reshape(()) if tensor.numel() == 1 else tensor for tensor in tensors]
        assert_close(*tensors, **rules)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and not isinstance(value, Set)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class subtest:
    """Values for one case of ``parametrize``, with a name and decorators of its own."""

    def __init__(self, arg_values: Any, name: str | None = None, decorators: Sequence[Callable[..., Any]] = ()) -> None:
        self.arg_values, self.name, self.decorators = arg_values, name, decorators


def parametrize(
    arg_str: str, arg_values: Sequence[Any], name_fn: Callable[..., str] | None = None
) -> Callable[[Any], Any]:
    """Have ``instantiate_parametrized_tests`` make a test for each of the values of the arguments."""
    names = [name.strip() for name in arg_str.split(",")]

    def decorate(function: Any) -> Any:
        cases = [_case(names, value, index, name_fn) for index, value in enumerate(arg_values)]
        setattr(function, _PARTS, [cases, *getattr(function, _PARTS, [])])
        return function

    return decorate


def _case(
    names: Sequence[str], given: Any, index: int, name_fn: Callable[..., str] | None
) -> tuple[str, dict[str, Any], Sequence[Callable[..., Any]]]:
    decorators, name = (given.decorators, given.name) if isinstance(given, subtest) else ((), None)
    value = given.arg_values if isinstance(given, subtest) else given
    values = list(value) if len(names) > 1 else [value]
    if name is None:
        shown = (_shown(label, entry, index) for label, entry in zip(names, values, strict=True))
        name = name_fn(*values) if name_fn else "_".join(shown)
    return name, dict(zip(names, values, strict=True)), decorators


def _shown(label: str, value: Any, index: int) -> str:
    """Return how an argument is told in the name of a test: by its value where that has a short text."""
    if isinstance(value, (bool, int, float, str)):
        return f"{label}_{value}".replace(".", "_")
    return f"{label}_{value.__name__}" if isinstance(value, type) else f"{label}{index}"


def instantiate_parametrized_tests(generic_cls: type) -> type:
    """Replace the tests of a class that ``parametrize`` decorates by one for each combination of values."""
    for name, function in [*vars(generic_cls).items()]:
        parts = getattr(function, _PARTS, None)
        if parts is None:
            continue
        delattr(generic_cls, name)
        for cases in product(*parts):
            _instantiate(generic_cls, name, function, cases)
    return generic_cls


def _instantiate(generic_cls: type, name: str, function: Any, cases: Sequence[Any]) -> None:
    values = {key: value for _, given, _ in cases for key, value in given.items()}

    def test(self: Any) -> None:
        function(self, **values)

    decorated: Any = test
    for decorator in [one for _, _, decorators in cases for one in decorators]:
        decorated = decorator(decorated)
    test.__name__ = "_".join([name, *(suffix for suffix, _, _ in cases)])
    test.__doc__ = function.__doc__
    setattr(generic_cls, test.__name__, decorated)
