"""Maxima of windows by compiled loops, beside NumPy's and PyTorch's: every geometry, NaN, infinities, many threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

from server.engine.cpu.conv import pooling
from server.engine.device import threads
from server.engine.ops.layers import pooling as generic


@pytest.fixture(autouse=True, params=[1, 3])
def some_threads(monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[None]:
    monkeypatch.setattr(threads, "count", lambda: request.param)
    yield
    threads.stop()


@pytest.fixture
def only_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test in which NumPy's kernels look for maxima."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("the generic kernel was called")

    monkeypatch.setattr(generic, "_max_pool", refuse)
    monkeypatch.setattr(generic, "_max_pool_backward", refuse)


def images(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Elements of few different values, so that many are equal, and some that are not finite."""
    x = rng.integers(-3, 4, shape).astype("f")
    flat = x.reshape(-1)
    for number in (math.nan, math.inf, -math.inf):
        flat[rng.integers(0, flat.size, 20)] = number
    x[0, 0] = -math.inf
    return x


def geometry(rng: np.random.Generator, dims: int) -> tuple[tuple[int, ...], ...]:
    kernel, stride, dilation = (tuple(rng.integers(1, high, dims).tolist()) for high in (4, 4, 3))
    padding = tuple([int(rng.integers(0, k // 2 + 1)) for k in kernel])
    return kernel, stride, padding, dilation


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_maxima_and_indices_are_pytorchs(rng: Any, dims: int, ceil_mode: bool, only_loops: None) -> None:
    for _ in range(6):
        size = tuple(rng.integers(9, 60, dims).tolist())
        x = images(rng, (3, -(-20_000 // math.prod(size)), *size))
        numbers = geometry(rng, dims)
        print(x.shape, numbers)
        pool = TF.max_pool1d_with_indices if dims == 1 else TF.max_pool2d_with_indices
        source = torch.from_numpy(x).requires_grad_()
        expected, places = pool(source, *numbers, ceil_mode=ceil_mode)
        found = np.empty(expected.shape, "f"), np.empty(expected.shape, np.int64)
        pooling.max_pool(np, x, *numbers, ceil_mode, out=found)
        np.testing.assert_array_equal(found[0], expected.detach().numpy())
        np.testing.assert_array_equal(found[1], places.numpy())
        gradient = rng.standard_normal(expected.shape).astype("f")
        (wanted,) = torch.autograd.grad(expected, source, torch.from_numpy(gradient))
        result = np.empty_like(x)
        pooling.max_pool_backward(np, gradient, found[1], size, *numbers, out=result)
        np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-5, atol=1e-5)


def test_what_loops_do_not_take_is_left_to_numpy(rng: Any) -> None:
    whole = images(rng, (4, 20, 30, 40))
    for x in (whole.transpose(0, 1, 3, 2), whole.astype("d"), whole[:1, :1], whole.astype(np.int64)):
        shape = (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)
        found, expected = ((np.empty(shape, x.dtype), np.empty(shape, np.int64)) for _ in range(2))
        arguments = x, (2, 2), (2, 2), (0, 0), (1, 1), False
        pooling.max_pool(np, *arguments, out=found)
        generic._max_pool(np, *arguments, out=expected)
        for pair in zip(found, expected, strict=True):
            np.testing.assert_array_equal(*pair)


def test_indices_of_no_element_are_left_out(rng: Any, only_loops: None) -> None:
    gradient = rng.standard_normal((2, 100, 10, 10)).astype("f")
    indices = np.zeros(gradient.shape, np.int64)
    indices[0] = rng.choice([-1, 400, -(1 << 62), 1 << 62], gradient.shape[1:])
    result = np.empty((2, 100, 20, 20), "f")
    pooling.max_pool_backward(np, gradient, indices, (20, 20), (2, 2), (2, 2), (0, 0), (1, 1), out=result)
    assert not result[0].any()
    np.testing.assert_allclose(result[1, :, 0, 0], gradient[1].sum((1, 2)), rtol=1e-4, atol=1e-4)
