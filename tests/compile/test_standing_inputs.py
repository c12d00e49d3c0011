"""What stands of a compiled function's inputs from one run to the next is what would be found of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from server.session.programs import situations
from server.session.programs.situations import Standing, situation

LAYERS = 9
STEPS = 150


@pytest.fixture
def stood(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each run of a program whether what was found before stood; what did not stand is an error."""
    noted: list[bool] = []
    computed: list[int] = []
    of = Standing.of

    def compared(standing: Standing, state: Any, values: Any, has_passes: bool) -> Any:
        computed.clear()
        found = of(standing, state, values, has_passes)
        noted.append(not computed)
        assert found == situation(state, values, has_passes), "what stood is not what is there"
        return found

    def counted(*args: Any) -> Any:
        computed.append(1)
        return situation(*args)

    monkeypatch.setattr(Standing, "of", compared)
    monkeypatch.setattr(situations, "situation", counted)
    return noted


class Changes:
    """What programs do to parameters, buffers and inputs between calls of a compiled module."""

    def __init__(self, tg: Any, random: Random, layers: int = LAYERS) -> None:
        self.tg, self.random = tg, random
        nn = tg.nn
        self.model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(layers)])
        self.x = tg.randn(2, 4)
        self.kept: list[Any] = []

    @property
    def layer(self) -> Any:
        return self.random.choice(list(self.model))

    def nothing(self) -> None:
        pass

    def new_input(self) -> None:
        self.x = self.tg.randn(2, 4)

    def input_of_other_size(self) -> None:
        self.x = self.tg.randn(self.random.choice([2, 3]), 4)

    def input_that_requires_grad(self) -> None:
        self.x = self.tg.randn(2, 4, requires_grad=True)

    def input_with_a_history(self) -> None:
        self.x = self.layer(self.tg.randn(2, 4))

    def input_in_memory_of_a_parameter(self) -> None:
        self.x = self.layer.weight.detach()[:2]

    def input_is_a_gradient(self) -> None:
        gradient = self.layer.weight.grad
        self.x = self.x if gradient is None else gradient[:2]

    def requires_grad(self) -> None:
        self.layer.weight.requires_grad_(self.random.random() < 0.7)

    def gradients(self) -> None:
        loss = self.model(self.tg.randn(2, 4)).sum()
        if loss.requires_grad:
            loss.backward()

    def gradient(self) -> None:
        weight = self.layer.weight
        weight.grad = self.tg.randn(4, 4)

    def no_gradients(self) -> None:
        self.model.zero_grad(set_to_none=self.random.random() < 0.8)

    def written_to(self) -> None:
        with self.tg.no_grad():
            self.layer.weight.mul_(0.99)

    def other_data(self) -> None:
        self.layer.weight.data = self.tg.randn(4, 4)

    def other_parameter(self) -> None:
        self.layer.bias = self.tg.nn.Parameter(self.tg.randn(4))

    def shared(self) -> None:
        self.layer.weight = self.layer.weight

    def optimized(self) -> None:
        self.gradients()
        self.tg.optim.SGD(self.model.parameters(), lr=1e-9).step()

    def converted(self) -> None:
        self.model.to(self.tg.float64).to(self.tg.float32)

    def dropped(self) -> None:
        self.kept.clear()


@pytest.mark.parametrize("layers", [4, LAYERS])
def test_what_stands_is_what_is_there(tg: Any, seed: int, stood: list[bool], layers: int) -> None:
    random = Random(seed)
    tg.manual_seed(seed)
    changes = Changes(tg, random, layers)
    done: list[Callable[[], None]] = [
        getattr(changes, name) for name in sorted(vars(Changes)) if name != "layer" and name[0] != "_"
    ]
    compiled = tg.compile(changes.model)
    for _ in range(STEPS):
        random.choice(done)()
        for _ in range(random.choice([1, 1, 3])):
            with tg.set_grad_enabled(random.random() < 0.5):
                result = compiled(changes.x)
            changes.kept.append(result)
        expected = changes.model(changes.x)
        tg.testing.assert_close(result.detach(), expected.detach(), rtol=1e-4, atol=1e-4, equal_nan=True)
        del changes.kept[: random.choice([0, 2])]
    assert any(stood), "nothing ever stood"


def test_inputs_that_move_into_memory_of_parameters_are_found_there(tg: Any, stood: list[bool]) -> None:
    model = tg.nn.Sequential(*[tg.nn.Linear(4, 4) for _ in range(LAYERS)])
    optimizer = tg.optim.Adam(model.parameters(), lr=1e-3)

    @tg.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for layer in model:
        layer.weight.data = tg.randn(4, 4)
        for _ in range(8):  # a value may get the identity of one that is gone, such as the input before
            step(tg.randn(2, 4))
        for _ in range(3):
            step(layer.weight.detach()[:2])
            step(optimizer.state[layer.weight]["exp_avg"][2:])
    assert any(stood), "nothing ever stood"


@pytest.mark.parametrize("clears", [True, False])
def test_what_stands_of_a_training_step_is_what_is_there(tg: Any, seed: int, stood: list[bool], clears: bool) -> None:
    random = Random(seed)
    tg.manual_seed(seed)
    changes = Changes(tg, random)
    refused = {"layer", "input_with_a_history", "input_is_a_gradient"}  # a second pass goes there, or changes it
    done: list[Callable[[], None]] = [
        getattr(changes, name) for name in sorted(set(vars(Changes)) - refused) if name[0] != "_"
    ]
    optimizer = tg.optim.Adam(changes.model.parameters(), lr=1e-3)

    @tg.compile
    def step(x: Any) -> Any:
        if clears:
            optimizer.zero_grad()
        loss = changes.model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(STEPS // 3):
        random.choice(done)()
        for _ in range(random.choice([1, 6, 9])):
            if changes.x.dtype is not changes.model[0].weight.dtype:
                changes.new_input()
            if random.random() < 0.5:
                changes.x = changes.x.detach() * 0.9
            if any([p.requires_grad for p in changes.model.parameters()]):
                changes.kept.append(step(changes.x))
        del changes.kept[: random.choice([0, 9])]
    assert any(stood), "nothing ever stood"
