"""``torch._dynamo.test_case``: test cases that begin with nothing compiled."""

from __future__ import annotations

import importlib.util

from telegrad._programs.test_cases import TestCase as PlainTestCase
from telegrad._programs.test_cases import run_tests as run_plain_tests
from telegrad._session.grad_mode import is_grad_enabled, set_grad_enabled
from telegrad.compiler import reset
from telegrad.compiler.counters import counters
from telegrad.cuda import is_available


def run_tests(needs: str | tuple[str, ...] = ()) -> None:
    """Run the tests of the program, unless a package, or a GPU as ``"cuda"``, that they need is not there."""
    for need in (needs,) if isinstance(needs, str) else needs:
        is_there = is_available() if need == "cuda" else importlib.util.find_spec(need) is not None
        if not is_there:
            return
    run_plain_tests()


class TestCase(PlainTestCase):
    """Forgets before and after each test what was compiled, and what was counted."""

    def setUp(self) -> None:
        """Begin with nothing compiled."""
        self._had_gradients = is_grad_enabled()
        super().setUp()
        reset()
        counters.clear()

    def tearDown(self) -> None:
        """Forget what the test has compiled, and have gradients recorded as before."""
        reset()
        counters.clear()
        super().tearDown()
        set_grad_enabled(self._had_gradients)
