"""Fits a damped spring with tensors that have units: a subclass answers functions, methods and operators itself."""

# test: --steps 12
# agree: 1e-3

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

HANDLED: dict[Callable[..., Any], Callable[..., Any]] = {}


def implements(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        HANDLED.update(dict.fromkeys(functions, function))
        return function

    return decorate


class Quantity(torch.Tensor):
    """Numbers with exponents of meter, kilogram and second."""

    unit: tuple[int, int, int]

    @staticmethod
    def __new__(cls, data: torch.Tensor, unit: tuple[int, int, int]) -> Quantity:
        made = torch.as_tensor(data).as_subclass(cls)
        made.unit = unit
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})

    @property
    def plain(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def unit_of(value: Any) -> tuple[int, int, int]:
    return value.unit if isinstance(value, Quantity) else (0, 0, 0)


def plain(value: Any) -> Any:
    return value.plain if isinstance(value, Quantity) else value


@implements(torch.mul, torch.Tensor.mul)
def multiply(a: Any, b: Any) -> Quantity:
    return Quantity(plain(a) * plain(b), tuple(x + y for x, y in zip(unit_of(a), unit_of(b))))


@implements(torch.div, torch.Tensor.div)
def divide(a: Any, b: Any) -> Quantity:
    return Quantity(plain(a) / plain(b), tuple(x - y for x, y in zip(unit_of(a), unit_of(b))))


@implements(torch.add, torch.Tensor.add)
def add(a: Any, b: Any) -> Quantity:
    if unit_of(a) != unit_of(b):
        raise TypeError(f"{unit_of(a)} cannot be added to {unit_of(b)}")
    return Quantity(plain(a) + plain(b), unit_of(a))


@implements(torch.neg, torch.Tensor.neg)
def negate(a: Quantity) -> Quantity:
    return Quantity(-a.plain, a.unit)


@implements(torch.stack)
def stack(values: list[Quantity], dim: int = 0) -> Quantity:
    return Quantity(torch.stack([value.plain for value in values], dim), values[0].unit)


@implements(F.mse_loss)
def squared_error(input: Quantity, target: Quantity, **options: Any) -> torch.Tensor:
    if input.unit != target.unit:
        raise TypeError(f"{input.unit} cannot be compared with {target.unit}")
    return F.mse_loss(input.plain, target.plain, **options)


class Counting(TorchFunctionMode):
    """Counts what the program calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def simulate(stiffness: Quantity, damping: Quantity, steps: int = 40) -> Quantity:
    """The places of a mass on a spring, in steps of 0.1 s."""
    mass, dt = Quantity(torch.tensor(1.5), (0, 1, 0)), Quantity(torch.tensor(0.1), (0, 0, 1))
    x, v = Quantity(torch.tensor(1.0), (1, 0, 0)), Quantity(torch.tensor(0.0), (1, 0, -1))
    places = []
    for _ in range(steps):
        force = -(stiffness * x) + -(damping * v)
        v = v + force / mass * dt
        x = x + v * dt
        places.append(x)
    return torch.stack(places)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    draw = np.random.default_rng(args.seed)
    with torch.no_grad():
        clean = simulate(Quantity(torch.tensor(6.0), (0, 1, -2)), Quantity(torch.tensor(0.4), (0, 1, -1)))
    noise = torch.from_numpy(draw.normal(0, 0.01, tuple(clean.shape))).float()
    measured = clean + Quantity(noise, (1, 0, 0))
    weights = torch.tensor([2.0, 1.0], requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.15)
    for step in range(args.steps):
        loss = F.mse_loss(simulate(Quantity(weights[0], (0, 1, -2)), Quantity(weights[1], (0, 1, -1))), measured)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step:2d} loss {loss.item():.5f}")
    try:
        measured + noise
    except TypeError:
        print("meters are not added to numbers")
    with Counting() as counting:
        F.softmax(1 - torch.ones(3), dim=0).to(torch.float64).unique()
    print(dict(counting.calls), type(measured[0]).__name__, measured.mean().dtype)


if __name__ == "__main__":
    main()
