"""Types of elements that a call asks for: those that PyTorch refuses are refused, and the others are what it makes."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import assert_same, evaluate

TYPES = (
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128", "uint8", "int8", "int32", "int64", "bool",
)  # fmt: skip
CALLS = [
    "t.cumsum(x, 0, dtype={})", "t.cumprod(x, 1, dtype={})", "x.clone().cumsum_(0, dtype={})",
    "x.clone().cumprod_(0, dtype={})", "t.cumsum(x, 0, out=t.empty(2, 2, dtype={}))", "t.masked.sum(x, 0, dtype={})",
    "t.masked.prod(x, 0, dtype={})", "t.masked.cumsum(x, 0, dtype={})", "t.masked.cumprod(x, 0, dtype={})",
    "t.nanmean(x, 0, dtype={}).dtype", "t.norm(x, dtype={}).dtype", "t.norm(x, 'fro', dtype={}).dtype",
    "t.nn.functional.softmin(x, 0, dtype={}).dtype", "t.zeros(2, dtype={}).bernoulli_(0.0)",
    "t.randint_like(x, 2, dtype={}).dtype", "t.randint_like(x, -1, 2, dtype={}).dtype",
]  # fmt: skip
MADE = [
    "t.randint(0, 2, (3,), dtype={}).dtype", "t.randint(0, 300, (3,), dtype={}).dtype",
    "t.randint(-1, 2, (3,), dtype={}).dtype", "t.randint(2**40, (3,), dtype={}).dtype", "t.randperm(4, dtype={}).dtype",
    "t.randperm(128, dtype={}).dtype", "t.randperm(129, dtype={}).dtype", "t.randperm(2049, dtype={}).dtype",
    "t.randperm(2050, dtype={}).dtype", "t.logspace(0, 1, 3, dtype={}).dtype", "t.linspace(0, 1, 3, dtype={}).dtype",
    "t.linspace(0, 1, 1, dtype={})", "t.tril_indices(3, 4, -1, dtype={})", "t.triu_indices(4, 3, 1, dtype={})",
    "t.fft.fftfreq(4, dtype={})", "t.fft.rfftfreq(4, dtype={})", "t.full((2,), 2 + 1j, dtype={})",
    "t.full((2,), 2 + 0j, dtype={})", "t.zeros(2, dtype={}).fill_(1j)", "t.full_like(t.ones(2), 0j, dtype={})",
]  # fmt: skip
OPERANDS = [
    "t.tensor([[1.0, 2.0], [3.0, 4.0]])",
    "t.tensor([[1, 2], [3, 4]])",
    "t.tensor([[True, False], [True, True]])",
]


@pytest.mark.parametrize("operand", [*OPERANDS, "t.tensor([[1.0, 2.0j], [3.0, 4.0]])"])
@pytest.mark.parametrize("call", CALLS)
def test_results_have_the_types_that_pytorch_takes(call: str, operand: str, tg: Any) -> None:
    for name in TYPES:
        if not (call.startswith("t.nanmean") and name.startswith("complex")):  # which takes complex numbers here
            assert_same(*evaluate(f"x = {operand}\n{call.format(f't.{name}')}", tg), f"{call} {name}")


@pytest.mark.parametrize("call", MADE)
def test_made_tensors_have_the_types_that_pytorch_takes(call: str, tg: Any) -> None:
    for name in TYPES:
        assert_same(*evaluate(call.format(f"t.{name}"), tg), f"{call} {name}")


@pytest.mark.parametrize(
    "made",
    [
        "t.full((2,), 2 + 1j, dtype=t.complex32)", "t.zeros(2, dtype=t.complex32).fill_(1j)",
        "t.full_like(t.ones(2), 1j, dtype=t.complex32)", "t.ones(2, dtype=t.complex32) * 1j",
    ],
)  # fmt: skip
def test_half_precision_complex_numbers_keep_imaginary_parts(made: str, tg: Any) -> None:
    assert_same(*evaluate(f"{made}.to(t.complex64)", tg))


def test_sums_in_half_precision_complex_numbers_are_those_of_the_numbers(tg: Any) -> None:
    whole, mixed = tg.tensor([[1, 2], [3, 4]]), tg.tensor([1 + 2j, 3 - 1j])
    assert tg.sum(whole, 0, dtype=tg.complex32).tolist() == [4, 6]
    assert tg.sum(mixed, dtype=tg.complex32).item() == 4 + 1j
