"""Matrices that have no factorization, on GPUs: the device finds them while the host goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from server.engine import context
from telegrad_protocol.errors import ArgumentError, LinearAlgebraError

from ..gpus import GPUS
from .adapters import EngineAdapter

pytestmark = pytest.mark.gpu


@pytest.fixture(params=GPUS)
def engine(request: pytest.FixtureRequest) -> EngineAdapter:
    return EngineAdapter(request.param)


def _batch(spoil: Callable[[torch.Tensor], Any], count: int, size: int) -> torch.Tensor:
    """Positive-definite matrices, the last but one of which is spoilt."""
    root = torch.randn(count, size, size, dtype=torch.float64)
    made = root @ root.mT + size * torch.eye(size, dtype=torch.float64)
    spoil(made[count - 2])
    return made


CASES = {
    "linalg_cholesky": (lambda m: m.neg_(), "positive-definite"),
    "linalg_inv": (lambda m: m.zero_(), "singular"),
    "linalg_lu_factor": (lambda m: m.zero_(), "zero"),
    "linalg_eigh": (lambda m: m.fill_(torch.nan), "converge"),
    "linalg_eigvalsh": (lambda m: m.fill_(torch.nan), "converge"),
    "linalg_svdvals": (lambda m: m.fill_(torch.nan), "converge"),
}


@pytest.mark.parametrize("size", [5, 40, 600])
@pytest.mark.parametrize("name", CASES)
def test_a_matrix_without_a_result_is_told_when_somebody_waits(
    engine: EngineAdapter, name: str, size: int, seed: int
) -> None:
    torch.manual_seed(seed)
    spoil, message = CASES[name]
    count = 3 if size == 600 else 7
    good, bad = (engine.tensor(_batch(how, count, size)) for how in (lambda m: m, spoil))
    run = engine.function(name)
    run(good)
    context.current.checks.raise_fault()
    with pytest.raises(
        LinearAlgebraError, match=rf"{name.replace('_', '.', 1)}: \(Batch element {count - 2}\).*{message}"
    ):
        run(bad)
        context.current.checks.raise_fault()
    assert not context.current.checks.outstanding
    run(good)
    context.current.checks.raise_fault()


def test_the_host_does_not_wait_for_a_factorization(engine: EngineAdapter) -> None:
    made = [engine.function("linalg_cholesky")(engine.tensor(_batch(lambda m: m, 3, 20))) for _ in range(3)]
    assert len(context.current.checks.outstanding) == 3, "nobody has looked yet"
    assert engine.numpy(made[0]).shape == (3, 20, 20) and not context.current.checks.outstanding


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -1.0, 0.0])
def test_weights_that_make_no_sense_are_told_when_somebody_waits(
    engine: EngineAdapter, value: float, replacement: bool, dtype: torch.dtype
) -> None:
    weights = torch.rand(5, 700, dtype=dtype) + 0.25
    engine.functional.multinomial(engine.tensor(weights), 700, replacement)
    context.current.checks.raise_fault()
    spoilt = weights.clone()
    spoilt[3, 1 if value else slice(None)] = value
    with pytest.raises(ArgumentError, match="`inf`, `nan` or element < 0" if value else "sum of probabilities <= 0"):
        engine.functional.multinomial(engine.tensor(spoilt), 4, replacement)
        context.current.checks.raise_fault()
    assert not context.current.checks.outstanding
