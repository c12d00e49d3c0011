"""Random operations: the distribution, the seed, the type, and what is refused."""

from __future__ import annotations

from math import exp
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.operators import OPERATORS
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError, TelegradError
from telegrad_protocol.meta import CPU, Meta

from .adapters import EngineAdapter

N = 40_000
FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _drawn(adapter: EngineAdapter, value: Any) -> np.ndarray[Any, Any]:
    return adapter.numpy(value).astype(np.float64)


@pytest.mark.parametrize("dtype", FLOATS)
def test_moments_are_those_of_the_distribution(dtype: DType, adapter: EngineAdapter) -> None:
    F = adapter.functional
    cases = {
        "rand": (F.rand(N, dtype=dtype), 0.5, 1 / 12),
        "randn": (F.randn(N, dtype=dtype), 0, 1),
        "uniform_": (F.uniform_(F.empty(N, dtype=dtype), -1, 3), 1, 16 / 12),
        "normal_": (F.normal_(F.empty(N, dtype=dtype), 2, 3), 2, 9),
        "exponential_": (F.exponential_(F.empty(N, dtype=dtype), 0.5), 2, 4),
        "log_normal_": (F.log_normal_(F.empty(N, dtype=dtype), 0, 0.25), exp(1 / 32), exp(1 / 16) * (exp(1 / 16) - 1)),
        "geometric_": (F.geometric_(F.empty(N, dtype=dtype), 0.25), 4, 12),
        "bernoulli": (F.bernoulli(F.full((N,), 0.25, dtype=dtype)), 0.25, 3 / 16),
        "bernoulli_": (F.bernoulli_(F.empty(N, dtype=dtype), 0.25), 0.25, 3 / 16),
    }
    for name, (value, mean, variance) in cases.items():
        assert value.dtype is dtype
        result = _drawn(adapter, value)
        assert abs(result.mean() - mean) < 6 * (variance / N) ** 0.5 + 0.004, name
        assert abs(result.var() / variance - 1) < 0.06, name


@pytest.mark.parametrize("dtype", FLOATS)
def test_cauchy_numbers_have_the_quartiles_of_the_distribution(dtype: DType, adapter: EngineAdapter) -> None:
    result = _drawn(adapter, adapter.functional.cauchy_(adapter.functional.empty(N, dtype=dtype), 2.0, 0.5))
    np.testing.assert_allclose(np.quantile(result, [0.25, 0.5, 0.75]), [1.5, 2.0, 2.5], atol=0.03)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_numbers_never_reach_one(dtype: DType, adapter: EngineAdapter) -> None:
    result = _drawn(adapter, adapter.functional.rand(N, dtype=dtype))
    assert result.min() >= 0 and result.max() < 1


def test_the_seed_decides_the_numbers(adapter: EngineAdapter) -> None:
    generator = adapter.context.generators[adapter.device]

    def draw() -> list[Any]:
        generator.manual_seed(7)
        F = adapter.functional
        return [
            _drawn(adapter, v).tolist() for v in (F.rand(10), F.randn(3, 4), F.randint(0, 100, (5,)), F.randperm(9))
        ]

    assert draw() == draw()
    assert (
        _drawn(adapter, adapter.functional.rand(10)).tolist() != _drawn(adapter, adapter.functional.rand(10)).tolist()
    )


def test_complex_normal_numbers_have_variance_one(adapter: EngineAdapter) -> None:
    result = adapter.numpy(adapter.functional.randn(N, dtype=dtypes.complex64))
    assert abs(result.real.var() - 0.5) < 0.03 and abs(result.imag.var() - 0.5) < 0.03


@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.uint8, dtypes.float32])
def test_integers_fill_their_range(dtype: DType, adapter: EngineAdapter) -> None:
    F = adapter.functional
    for value in (
        F.randint(7, (N,), dtype=dtype),
        F.randint(0, 7, (N,), dtype=dtype),
        F.random_(F.empty(N, dtype=dtype), 7),
    ):
        numbers, counts = np.unique(_drawn(adapter, value), return_counts=True)
        assert numbers.tolist() == list(range(7)) and counts.min() > N / 7 * 0.9
    assert set(_drawn(adapter, F.random_(F.empty(N, dtype=dtypes.bool_)))) == {0, 1}
    assert _drawn(adapter, F.random_(F.empty(N, dtype=dtypes.int8))).max() == 127
    assert set(_drawn(adapter, F.random_(F.empty(100), -3, -1))) == {-3, -2}


def test_randperm_is_a_permutation(adapter: EngineAdapter) -> None:
    for n in (0, 1, 1000):
        assert sorted(_drawn(adapter, adapter.functional.randperm(n)).tolist()) == list(range(n))


def test_normal_takes_tensors_and_numbers(adapter: EngineAdapter) -> None:
    F = adapter.functional
    mean, std = F.full((N,), 5.0), F.full((N,), 0.1)
    for value in (
        F.normal(mean, std),
        F.normal(mean, 0.1),
        F.normal(5.0, std),
        F.normal(5.0, 0.1, (N,)),
        F.normal(mean, std=0.1),
    ):
        result = _drawn(adapter, value)
        assert result.shape == (N,) and abs(result.mean() - 5) < 0.01 and abs(result.std() - 0.1) < 0.01


def test_multinomial_follows_the_weights(adapter: EngineAdapter) -> None:
    F = adapter.functional
    weights = adapter.tensor(torch.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]]))
    result = adapter.numpy(F.multinomial(weights, N, replacement=True))
    shares = np.stack([(result == k).mean(axis=1) for k in range(3)], axis=1)
    assert np.abs(shares - [[0.25, 0, 0.75], [0.5, 0.5, 0]]).max() < 0.02
    for _ in range(20):
        assert sorted(adapter.numpy(F.multinomial(weights, 2))[0].tolist()) == [0, 2]


def test_the_first_draw_without_replacement_follows_the_weights(adapter: EngineAdapter) -> None:
    weights = adapter.functional.expand(adapter.tensor(torch.tensor([1.0, 2.0, 5.0])), (N, 3))
    first = adapter.numpy(adapter.functional.multinomial(weights, 2))[:, 0]
    assert np.abs(np.bincount(first, minlength=3) / N - [1 / 8, 2 / 8, 5 / 8]).max() < 0.02


def test_multinomial_has_as_many_categories_as_pytorchs() -> None:
    op, weights = OPERATORS["multinomial"].op, Meta.of((2, 1 << 24), dtypes.float32, CPU)
    assert op.infer((weights, 3, True)).shape == (2, 3)
    with pytest.raises(ArgumentError, match=r"number of categories cannot exceed 2\^24"):
        op.infer((Meta.of((2, (1 << 24) + 1), dtypes.float32, CPU), 3, True))


@pytest.mark.parametrize(
    ("name", "args", "error", "message"),
    [
        ("randint", (5, 5, (2,)), ArgumentError, "low must be less than high"),
        ("normal", (0.0, -1.0, (2,)), ArgumentError, "normal expects std >= 0.0, but found std"),
        ("multinomial", ("weights", 4), ArgumentError, "without replacement"),
        ("multinomial", ("zeros", 1), ArgumentError, "sum of probabilities <= 0"),
        ("multinomial", ("negative", 1), ArgumentError, "element < 0"),
        ("multinomial", ("cube", 1), ShapeError, "prob_dist must be 1 or 2 dim"),
        ("bernoulli", ("negative",), ArgumentError, "probabilities must be in"),
        ("bernoulli", ("weights", 1.5), ArgumentError, "p must be in"),
        ("uniform_", ("weights", 3, 1), ArgumentError, "found from=3 > to=1"),
        ("exponential_", ("weights", 0), ArgumentError, "expects lambda > 0.0"),
        ("normal_", ("integers",), DTypeError, "not defined for int64"),
        ("bernoulli", ("integers",), DTypeError, "not defined for int64"),
    ],
)
def test_what_makes_no_sense_is_refused(
    name: str, args: tuple[Any, ...], error: type[TelegradError], message: str, adapter: EngineAdapter
) -> None:
    tensors = {
        "weights": torch.ones(3), "zeros": torch.zeros(3), "negative": torch.tensor([-1.0, 1, 1]),
        "cube": torch.ones(2, 2, 2), "integers": torch.ones(3, dtype=torch.int64),
    }  # fmt: skip
    bound = [adapter.tensor(tensors[a]) if isinstance(a, str) else a for a in args]
    with pytest.raises(error, match=message):
        adapter.function(name)(*bound)


def test_random_numbers_of_an_integer_type_are_refused(adapter: EngineAdapter) -> None:
    with pytest.raises(DTypeError, match="rand: not defined for int64"):
        adapter.functional.rand(2, dtype=dtypes.int64)


def test_indices_without_weight_are_drawn_last(adapter: EngineAdapter) -> None:
    weights = torch.tensor([[0.0, 1, 0, 2, 0], [3, 0, 0, 0, 0]])
    drawn = adapter.functional.multinomial(adapter.tensor(weights), 5)
    first, second = adapter.numpy(drawn).tolist()
    assert sorted(first) == sorted(second) == [0, 1, 2, 3, 4]
    assert sorted(first[:2]) == [1, 3] and second[0] == 0
