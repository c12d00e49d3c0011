"""Random programs that change between calls compute compiled what they compute eagerly, and what PyTorch computes."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.draws import drawn

from .changing_programs import COLUMNS, Call, Program, random_program

pytestmark = pytest.mark.filterwarnings("ignore")
TOLERANCE = 1e-6
"""Of the largest element; programs compute in float64."""


@pytest.fixture(autouse=True)
def _float64(tg: Any) -> Iterator[None]:
    for t in (tg, torch):
        t.set_default_dtype(t.float64)
    yield
    sys.modules.pop("changing_program", None)
    for t in (tg, torch):
        t.set_default_dtype(t.float32)


@pytest.fixture
def eager_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch, which compiles nothing."""
    monkeypatch.setattr(torch, "compile", lambda function: function)
    return torch


@pytest.mark.parametrize("number", drawn([pytest.param(n, id=f"program_{n}") for n in range(300)], 12))
def test_compiled_equals_eager_and_pytorch(tg: Any, eager_torch: Any, number: int, seed: int, tmp_path: Path) -> None:
    program = random_program(np.random.default_rng(seed))
    print(program.text, *program.calls, sep="\n")
    compiled, eager, expected = (
        list(outcomes(t, program, tmp_path / f"program_{place}.py", is_compiled))
        for place, (t, is_compiled) in enumerate([(tg, True), (tg, False), (eager_torch, False)])
    )
    for call, (ours, other, theirs) in enumerate(zip(compiled, eager, expected, strict=True)):
        require_same(ours, other, 0.0, f"call {call}, compiled and eager")
        require_same(other, theirs, TOLERANCE, f"call {call}, eager and PyTorch")


def outcomes(t: Any, program: Program, file: Path, is_compiled: bool) -> Iterator[list[Any]]:
    """Yield what each call returns or raises, and all tensors and gradients that are there after it."""
    file.write_text(program.text)
    linecache.checkcache(str(file))
    module = sys.modules["changing_program"] = types.ModuleType("changing_program")
    names = vars(module)
    names["t"] = t
    exec(compile(program.text, str(file), "exec"), names)  # noqa: S102  the tests' own programs
    function = t.compile(names["f"]) if is_compiled else names["f"]
    for call in program.calls:
        for change in call.changes:
            exec(change, names)  # noqa: S102
        x, y = _arguments(t, call)
        try:
            with nullcontext() if call.mode == "none" else getattr(t, call.mode)():
                result = function(x, y)
            told = _told(t, result)
            if call.has_backward and isinstance(result[0], t.Tensor) and result[0].requires_grad:
                result[0].square().sum().backward()
            x.detach().sum().item()  # what has failed on the server is raised here
        except (ValueError, RuntimeError, IndexError) as error:
            told = ["raised", isinstance(error, IndexError)]
            _forget_gradients(t, [x, *names.values()])  # those that the pass would have computed
        state = [_held(t, names[name]) for name in sorted(names) if not name.startswith("_")]
        yield [told, _told(t, [x, y, x.grad if x.is_leaf else None]), _told(t, state)]


def _forget_gradients(t: Any, values: Sequence[Any]) -> None:
    for value in values:
        for one in value.parameters() if isinstance(value, t.nn.Module) else [value]:
            if isinstance(one, t.Tensor) and one.is_leaf:
                one.grad = None


def _held(t: Any, value: Any) -> Any:
    """Return what there is of a global variable: tensors, and those of layers with their gradients."""
    if isinstance(value, t.nn.Module):
        return [[p, p.grad] for p in value.parameters()]
    return value if isinstance(value, t.Tensor) else None


def _arguments(t: Any, call: Call) -> tuple[Any, Any]:
    rng, rows = np.random.default_rng(call.seed), call.rows

    def tensor(*shape: int) -> Any:
        return t.tensor(rng.standard_normal(shape))

    x = {
        "plain": lambda: tensor(rows, COLUMNS),
        "transposed": lambda: tensor(COLUMNS, rows).t(),
        "expanded": lambda: tensor(1, COLUMNS).expand(rows, COLUMNS),
        "sliced": lambda: tensor(rows + 1, COLUMNS + 1)[1:, 1:],
        "stepped": lambda: tensor(2 * rows, COLUMNS)[::2],
    }[call.layout]()
    x.requires_grad_(call.requires_grad)
    y = {
        "whole": lambda: tensor(rows, COLUMNS),
        "row": lambda: tensor(1, COLUMNS),
        "column": lambda: tensor(rows, 1),
        "number": lambda: tensor(),
        "same": lambda: x,
        "view": lambda: x[:],
        "detached": lambda: x.detach(),
    }[call.other]()
    return x, y


def _told(t: Any, value: Any) -> Any:
    """Return values as lists that are compared, with arrays for tensors."""
    if isinstance(value, t.Tensor):
        return [tuple(value.shape), value.requires_grad, value.is_leaf, str(value.dtype).partition(".")[2],
                value.detach().clone().numpy()]  # fmt: skip
    if isinstance(value, dict):
        return [[key, _told(t, one)] for key, one in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_told(t, one) for one in value]
    return value


def require_same(ours: Any, theirs: Any, tolerance: float, where: str) -> None:
    if isinstance(theirs, list):
        assert isinstance(ours, list) and len(ours) == len(theirs), f"{where}: {ours} and {theirs}"
        for one, other in zip(ours, theirs, strict=True):
            require_same(one, other, tolerance, where)
    elif isinstance(theirs, np.ndarray):
        size = np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * size, err_msg=where)
    else:
        assert ours == theirs, where
