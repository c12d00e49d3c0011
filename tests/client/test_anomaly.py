"""Anomaly mode names the node that computed NaN, and shows the line that called its operation, as PyTorch does."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from telegrad_protocol.errors import AutogradError


def _root(t: Any, x: Any) -> Any:
    return (x.sqrt() * 0).sum()


def _two_outputs(t: Any, x: Any) -> Any:
    return (x * 0 / (x * 0) + 1).sum()


def _function(t: Any, x: Any) -> Any:
    class Bad(t.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient, gradient * float("nan")

    return Bad.apply(x * 2, x).sum()


def _composite(t: Any, x: Any) -> Any:
    return t.nn.functional.normalize((x * 0).reshape(1, 2), eps=0.0).sum()


def _failing(t: Any, x: Any) -> Any:
    y = (x * 1).exp()
    z = (y * 2).sum()
    y.add_(1)
    return z


def _outcome(t: Any, program: Callable[[Any, Any], Any], way: str) -> tuple[str, list[str]]:
    """The error, and what the warning says of the node and of its line."""
    x = t.tensor([-1.0, 4.0], requires_grad=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with t.autograd.detect_anomaly(), pytest.raises(RuntimeError) as failed:
            root = program(t, x)
            if way == "backward":
                root.backward()
            else:
                t.autograd.grad(root, x, create_graph=True)[0].tolist()
    texts = [str(one.message) for one in told if "Error detected" in str(one.message)]
    nodes = [text.partition(".")[0] for text in texts]
    lines = [re.findall(r"line \d+, in \w+\n.*", text)[-1:] for text in texts]
    return str(failed.value).partition("\n")[0], [*nodes, *map(str, lines)]


@pytest.mark.parametrize("way", ["backward", "grad"])
@pytest.mark.parametrize("program", [_root, _two_outputs, _composite])
def test_the_node_and_its_line_are_pytorchs(tg: Any, program: Callable[[Any, Any], Any], way: str) -> None:
    expected = _outcome(torch, program, way)
    assert "returned nan values" in expected[0] and len(expected[1]) == 2
    if program is _composite:  # which line of PyTorch's own code it is says nothing
        assert _outcome(tg, program, way)[0] == expected[0]
    else:
        assert _outcome(tg, program, way) == expected


def test_functions_of_the_program_are_named(tg: Any) -> None:
    assert _outcome(tg, _function, "backward")[0] == _outcome(torch, _function, "backward")[0]


def test_other_failures_show_the_line_too(tg: Any) -> None:
    error, (node, line) = _outcome(tg, _failing, "backward")
    assert "modified by an inplace operation" in error
    assert node == "Error detected in ExpBackward0" and "y = (x * 1).exp()" in line


def test_the_mode_ends_with_its_block(tg: Any) -> None:
    x = tg.tensor([-1.0], requires_grad=True)
    with tg.autograd.set_detect_anomaly(True):
        y = x.sqrt() * 0
    y.sum().backward()
    assert str(x.grad.item()) == "nan"
    with tg.autograd.set_detect_anomaly(True, check_nan=False):
        (x.sqrt() * 0).sum().backward()
    assert tg.ones(1).item() == 1
    state = x._session.transport._session.state
    assert state.context.trace is None and state.host_memory.noted < 1 << 20


@pytest.mark.gpu
def test_on_a_gpu_and_its_streams(cuda_tg: Any) -> None:
    x = cuda_tg.tensor([-1.0], device="cuda", requires_grad=True)
    for stream in (None, cuda_tg.cuda.Stream()):
        with (
            cuda_tg.cuda.stream(stream), cuda_tg.autograd.set_detect_anomaly(True), pytest.warns(UserWarning),
            pytest.raises(AutogradError, match="Function 'SqrtBackward0' returned nan values in its 0th output"),
        ):  # fmt: skip
            (x.sqrt() * 0).sum().backward()
