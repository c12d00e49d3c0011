"""Products of batches of small matrices and powers of matrices on the CPU, beside products in extended precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine import compiled
from server.engine.device import threads

from .adapters import EngineAdapter

_TYPES = ("float32", "float64", "complex64")


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    parts = rng.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if dtype.startswith("complex") else parts[0]).astype(dtype)


def _is_close(actual: Any, exact: Any, sizes: Any) -> bool:
    """Whether errors are a few roundings of sums of products of so large sizes."""
    bound = 4 * np.finfo(actual.dtype).eps * sizes + 1e-300
    return bool((np.abs(actual - exact) <= bound * 4).all())


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("number", [1, 2])
def test_products_of_any_layout(
    adapter: EngineAdapter, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, dtype: str, number: int
) -> None:
    monkeypatch.setattr(threads, "most", number)
    assert compiled.kernels("tensors.small_products")
    functional = adapter.functional
    for count, m, n, k in (
        (1, 2, 2, 2),
        (300, 2, 3, 4),
        (500, 3, 3, 3),
        (128, 6, 6, 6),
        (9000, 4, 4, 4),
        (70, 1, 5, 8),
    ):
        a, b = _numbers(rng, (count, m, k), dtype), _numbers(rng, (count, n, k), dtype)
        left, right = (adapter.tensor(torch.from_numpy(x)) for x in (a, b))
        wide = a.astype("G"), b.swapaxes(1, 2).astype("G")
        exact, sizes = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
        for _ in range(2):
            product = functional.bmm(left, functional.transpose(right, 1, 2))
            assert _is_close(adapter.numpy(product), exact, sizes), (count, m, n, k)
        every = functional.bmm(functional.slice(left, 0, 0, None, 2), functional.transpose(
            functional.slice(right, 0, 0, None, 2), 1, 2))  # fmt: skip
        assert _is_close(adapter.numpy(every), exact[::2], sizes[::2]), (count, m, n, k)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("shape", [(2, 2), (300, 3, 3), (2, 40, 5, 5), (40, 40)], ids=str)
def test_powers_of_matrices(
    adapter: EngineAdapter, rng: np.random.Generator, dtype: str, shape: tuple[int, ...]
) -> None:
    a = _numbers(rng, shape, dtype) / shape[-1] ** 0.5
    given, turned = (adapter.tensor(torch.from_numpy(x)) for x in (a, np.ascontiguousarray(a.swapaxes(-1, -2))))
    exact = sizes = np.broadcast_to(np.eye(shape[-1], dtype="G"), shape)
    for n in range(1, 8):
        exact, sizes = exact @ a.astype("G"), sizes @ np.abs(a.astype("G"))
        for matrix in (given, adapter.functional.transpose(turned, -1, -2)):
            power = adapter.function("linalg_matrix_power")(matrix, n)
            assert _is_close(adapter.numpy(power), exact, n * np.abs(sizes)), n
            assert (adapter.numpy(given) == a).all()


def test_products_of_what_is_not_finite(adapter: EngineAdapter, rng: np.random.Generator) -> None:
    a, b = (torch.from_numpy(_numbers(rng, (400, 3, 3), "float32")) for _ in range(2))
    a[5, 1, 1], b[7, 0, 2], a[9] = float("nan"), float("inf"), 0
    product = adapter.functional.bmm(adapter.tensor(a), adapter.tensor(b))
    np.testing.assert_allclose(adapter.numpy(product), (a @ b).numpy(), rtol=1e-5, atol=1e-5)
