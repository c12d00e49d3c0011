"""Single numbers in the states of optimizers, which are the client's until somebody reads them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

NUMBERED = ["Adagrad", "Adadelta", "RMSprop", "Rprop", "Adamax", "NAdam", "RAdam", "ASGD", "Adam"]


@pytest.mark.parametrize("name", NUMBERED)
def test_single_numbers_of_a_state_are_tensors_that_programs_read_and_change(tg: Any, name: str, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((2, 3))
    found = []
    for t in (torch, tg):
        weight = t.tensor(values, requires_grad=True)
        optimizer = getattr(t.optim, name)([weight], lr=0.1)

        def step(weight: Any = weight, optimizer: Any = optimizer) -> list[float]:
            weight.square().sum().backward()
            optimizer.step()
            entry = optimizer.state[weight]
            return [value.item() for value in entry.values() if value.ndim == 0]

        seen = [step(), step()]
        entry = optimizer.state[weight]
        held = entry["step"]
        seen += [step(), [held.item(), held is entry["step"], entry.get("step").item(), len(entry)]]
        held.add_(3)
        seen += [step(), [held.item()]]
        entry["step"] = t.tensor(1.0)
        seen += [step(), [value.item() for value in dict(entry).values() if value.ndim == 0]]
        seen += [[value.item() for value in {**copied}.values() if value.ndim == 0] for copied in (entry, entry.copy())]
        again = deepcopy(optimizer).state_dict()["state"][0]
        found.append(
            (seen, [*again], [value.tolist() for value in again.values()], weight.tolist(), entry.pop("step").item())
        )
    (theirs, their_names, their_state, their_weight, their_step), (ours, names, state, mine, our_step) = found
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-6)
    assert names == their_names and our_step == their_step
    for one, other in zip([*state, mine], [*their_state, their_weight], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


CHANGES: list[Callable[[dict[str, Any]], None]] = [
    lambda entry: operator.setitem(entry, "step", 7.0),
    lambda entry: entry.update(step=7.0),
    lambda entry: entry.update({"step": 7.0}),
]


@pytest.mark.parametrize("change", CHANGES, ids=["item", "named", "entries"])
def test_a_number_that_a_program_assigns_counts_though_it_holds_the_old_one(
    tg: Any, change: Callable[[dict[str, Any]], None]
) -> None:
    weight = tg.ones(3, requires_grad=True)
    optimizer = tg.optim.NAdam([weight], lr=0.1)

    def step() -> Any:
        weight.grad = tg.ones(3)
        optimizer.step()
        return optimizer.state[weight]

    entry = step()
    held = entry["step"]
    step()
    change(entry)
    step()
    assert [entry["step"].item(), held.item()] == [8, 2]


def test_a_step_waits_for_nothing_where_nobody_has_read_its_state(tg: Any) -> None:
    weight = tg.ones(3, requires_grad=True)
    optimizer = tg.optim.NAdam([weight], lr=0.1)

    def steps(count: int) -> int:
        before = weight._session.round_trips
        for _ in range(count):
            weight.grad = tg.ones(3)
            optimizer.step()
        return int(weight._session.round_trips - before)

    assert steps(2) == 0
    optimizer.state_dict()
    assert steps(1) == 0
    assert optimizer.state[weight]["step"].item() == 3
    assert steps(1) == 1
    assert steps(2) == 0
