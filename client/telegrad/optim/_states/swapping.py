"""An optimizer on other parameters and state for a while; ``optim`` exports it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from ..optimizer import Optimizer


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Let the optimizer work on other parameters, given in order, and on the state of a state dictionary."""
    groups, state = optimizer.param_groups, optimizer.state
    given = list(swapin_parameters.values())
    if len(given) != sum(len(group["params"]) for group in groups):
        raise ArgumentError(f"the optimizer has another number of parameters than {len(given)}")
    by_number: dict[Any, Tensor] = {}
    swapped, place = [], 0
    for group, saved in zip(groups, swapin_optim_state["param_groups"], strict=True):
        params = given[place : place + len(group["params"])]
        by_number.update(zip(saved["params"], params, strict=True))
        swapped.append({**group, **saved, "params": params})
        place += len(params)
    entries = swapin_optim_state["state"].items()
    try:
        optimizer.param_groups = swapped
        optimizer.state = defaultdict(dict, {by_number.get(number, number): dict(entry) for number, entry in entries})
        yield
    finally:
        optimizer.param_groups, optimizer.state = groups, state


swap_in_optimizer_params_and_state.__module__ = "telegrad.optim"  # where users find it
