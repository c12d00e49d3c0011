"""Compiled functions whose runs are verified: nothing is found where nothing is wrong, and what is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest

from server.engine.programs.execution import Execution
from server.session.programs import verification
from telegrad_protocol.errors import ProgramMismatchError

from . import functions as functions
from .harness import CASES, Case
from .test_functions import outcomes_of

WARM = 8
"""Calls after which a function is executed as one, whatever was freed meanwhile."""
VERIFIED = [case for case in CASES if case.name in {
    "adamw_with_a_scheduler_and_clipping", "a_module_in_training", "dropout_in_training", "an_input_in_place",
    "inputs_that_overlap", "autocast_inside", "uploads_inside", "a_grad_scaler", "views_of_views",
}]  # fmt: skip


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done to the outputs of executions, by number of the output."""
    changes: list[Any] = []
    outputs = Execution.outputs

    def changed(self: Execution) -> Any:
        made = outputs(self)
        for number, change in changes:
            change(made[number].array)
        return made

    monkeypatch.setattr(Execution, "outputs", changed)
    return changes


@pytest.mark.parametrize("case", VERIFIED, ids=lambda case: case.name)
def test_nothing_is_found_where_nothing_is_wrong(
    tg: Any, case: Case, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = outcomes_of(tg, case, seed, compiled=False)
    compile = tg.compile
    monkeypatch.setattr(tg, "compile", lambda function: compile(function, verify=True))
    monkeypatch.setattr("tests.compile.harness.Elements.tolerance", case.tolerance)
    assert outcomes_of(tg, case, seed, compiled=True) == expected


def test_the_operation_that_differs_is_named(tg: Any, wrong: list[Any]) -> None:
    @tg.compile(options={"verify": True})
    def function(x: Any) -> Any:
        y = (x * 2).exp() + 1 - x
        z = y.sum(0)  # the line
        return y, z

    for _ in range(WARM):
        _, z = function(tg.ones(2, 3))
    assert z.tolist()
    wrong.append((0, lambda array: array.__setitem__(0, 7.0)))
    with pytest.raises(ProgramMismatchError, match=r"sum: 1 of 3 elements of float32\[3\] differ, by 7.78 at") as error:
        for _ in range(WARM):  # what is freed in between may make one of them another program
            function(tg.ones(2, 3))[1].tolist()
    assert "test_verify.py" in error.value.site and error.value.operation == "sum"
    wrong.clear()
    assert function(tg.zeros(2, 3))[1].tolist() == [4.0] * 3, "the session goes on"


def test_numbers_from_half_precision_are_compared_roughly(tg: Any, wrong: list[Any]) -> None:
    weight = tg.linspace(-1, 1, 9).reshape(3, 3)

    @tg.compile(verify=True)
    def function(x: Any) -> Any:
        with tg.autocast("cpu", dtype=tg.bfloat16):
            y = (x @ weight).relu() * 3 + 0.1
            return ((y.sin() * y + 0.3) * 1.7).float().sum() / 3

    for _ in range(WARM):
        function(tg.ones(2, 3)).item()
    wrong.append((0, lambda array: array.__imul__(2)))
    with pytest.raises(ProgramMismatchError, match="1 of 1 elements of float32"):
        for _ in range(WARM):
            function(tg.ones(2, 3)).item()


def test_gradients_are_compared(tg: Any, wrong: list[Any]) -> None:
    weight = tg.ones(3, requires_grad=True)

    @tg.compile(verify=True)
    def function(x: Any) -> None:
        weight.grad = None
        (weight * x).exp().sum().backward()
        x.mul_(2).add_(1)

    for _ in range(WARM):
        function(tg.ones(3))
        tg.ones(1).item()
    wrong.append((0, lambda array: array.__iadd__(1)))
    with pytest.raises(ProgramMismatchError, match="backward: 3 of 3 elements of float32"):
        for _ in range(WARM):
            function(tg.ones(3))
            tg.ones(1).item()


def test_inputs_that_are_modified_are_compared(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @tg.compile(verify=True)
    def function(x: Any) -> None:
        x.mul_(2).add_(1).sin_()
        x.cos_()  # the line

    for _ in range(WARM):
        function(tg.ones(2, 3))
    tg.ones(1).item()
    copies_of = verification.copies_of

    def spoiled(taken: Any) -> Any:
        copies = copies_of(taken)
        copies[0].array[...] += 1
        return copies

    monkeypatch.setattr(verification, "copies_of", spoiled)
    with pytest.raises(ProgramMismatchError, match="cos_: an input that is modified: 6 of 6 elements") as error:
        for _ in range(WARM):
            function(tg.ones(2, 3))
            tg.ones(1).item()
    assert "test_verify.py" in error.value.site


@pytest.mark.gpu
def test_a_training_step_is_verified_on_a_gpu(cuda_tg: Any, seed: int) -> None:
    tg = cuda_tg
    tg.manual_seed(seed)
    model = tg.nn.Sequential(tg.nn.Linear(6, 8), tg.nn.GELU(), tg.nn.Dropout(0.2), tg.nn.Linear(8, 3)).to("cuda")
    optimizer = tg.optim.AdamW(model.parameters(), lr=1e-2)

    @tg.compile(verify=True)
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(8):
        assert step(tg.randn(4, 6, device="cuda"), tg.tensor([0, 1, 2, 0], device="cuda")).item() > 0
