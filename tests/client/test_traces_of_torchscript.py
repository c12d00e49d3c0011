"""``jit.trace`` calls what it is given once with the examples, and returns it; it runs eagerly from then on."""

from __future__ import annotations

from typing import Any

import pytest

TRACES = [
    "jit.trace(called, (x, 2))", "jit.trace(called, [x, 2])",
    "jit.trace(called, example_kwarg_inputs={'a': x, 'b': 2})",
    "jit.trace_module(called, {'forward': (x, 2), 'twice': x})",
    "jit.trace_module(called, {'forward': {'a': x, 'b': 2}}, example_inputs_is_kwarg=True)",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:jit.trace")
@pytest.mark.parametrize("trace", TRACES)
def test_a_module_is_called_with_its_examples_and_returned(trace: str, tg: Any) -> None:
    class Called(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[Any] = []

        def forward(self, a: Any, b: Any) -> Any:
            self.calls.append((a, b))
            return a * b

        def twice(self, a: Any) -> Any:
            self.calls.append((a,))
            return a * 2

    called, x = Called(), tg.ones(2)
    traced = eval(trace, {"jit": tg.jit, "called": called, "x": x})  # noqa: S307
    assert traced is called and called.calls[0] == (x, 2) and len(called.calls) == trace.count("'twice'") + 1
    assert traced(x, 3).tolist() == [3, 3]


@pytest.mark.filterwarnings("ignore:jit.trace")
def test_examples_that_do_not_fit_are_refused_when_tracing(tg: Any) -> None:
    with pytest.raises(RuntimeError, match=r"cannot multiply"):
        tg.jit.trace(tg.nn.Linear(2, 3), tg.ones(4, 5))
