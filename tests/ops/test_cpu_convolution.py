"""Convolutions by the compiled loops beside PyTorch in double precision: every geometry, layout and tile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

from server.engine import compiled
from server.engine.cpu.conv import kernels, pieces, planes
from server.engine.cpu.conv.parts import offsets
from server.engine.device import threads
from server.engine.ops.layers import convolution as generic

from .adapters import EngineAdapter, to_torch

CONVOLUTIONS = {
    1: (TF.conv1d, TF.conv_transpose1d),
    2: (TF.conv2d, TF.conv_transpose2d),
    3: (TF.conv3d, TF.conv_transpose3d),
}
SIZES = {1: (700,), 2: (23, 31), 3: (10, 9, 11)}


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "count", lambda: 3)
    yield
    threads.stop()


@pytest.fixture
def only_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails a test in which NumPy's kernels convolve."""

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("the generic kernel was called")

    monkeypatch.setattr(kernels, "_LEAST", 0)
    monkeypatch.setattr(generic, "convolution", refuse)
    monkeypatch.setattr(generic, "_convolution_weight_backward", refuse)


def call(adapter: EngineAdapter, name: str, *args: Any) -> torch.Tensor:
    given = [adapter.tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    return to_torch(adapter.numpy(adapter.function(name)(*given)))


def numbers(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def agree(result: torch.Tensor, expected: torch.Tensor, terms: int) -> None:
    tolerance = 1e-6 * math.sqrt(terms)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=4 * tolerance, equal_nan=True)


def check(
    adapter: EngineAdapter, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: list[int],
    padding: list[int], dilation: list[int], groups: int,
) -> None:  # fmt: skip
    """The convolution, its two gradients, and through the first of them a transposed convolution."""
    dims = x.ndim - 2
    wide = [t.double().detach().requires_grad_() for t in (x, weight)]
    expected = CONVOLUTIONS[dims][0](*wide, None if bias is None else bias.double(), stride, padding, dilation, groups)
    terms = weight[0].numel()
    result = call(adapter, "convolution", x, weight, bias, stride, padding, dilation, False, [0] * dims, groups)
    agree(result, expected.detach(), terms)
    grad = torch.randn(expected.shape, dtype=x.dtype).to(memory_format=_format(x))
    by_input, by_weight = torch.autograd.grad(expected, wide, grad.double())
    spanned = [
        (g - 1) * s - 2 * p + d * (k - 1) + 1
        for g, s, p, d, k in zip(grad.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True)
    ]
    rest = [n - m for n, m in zip(x.shape[2:], spanned, strict=True)]
    result = call(adapter, "convolution", grad, weight, None, stride, padding, dilation, True, rest, groups)
    agree(result, by_input, terms * len(weight) // x.shape[1] + 1)
    kernel = list(weight.shape[2:])
    result = call(
        adapter, "_convolution_weight_backward", grad, x, kernel, stride, padding, dilation, groups, False
    )  # fmt: skip
    agree(result, by_weight, grad.numel() // grad.shape[1])


def _format(x: torch.Tensor) -> torch.memory_format:
    is_last = x.ndim == 4 and x.stride(1) == 1
    return torch.channels_last if is_last else torch.contiguous_format


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_every_geometry_agrees_with_double_precision(
    adapter: EngineAdapter, rng: Any, dims: int, only_loops: None
) -> None:
    for number in range(8):
        kernel, stride, dilation = (rng.integers(1, 4, dims).tolist() for _ in range(3))
        padding = [int(rng.integers(0, d * (k - 1) + 2)) for d, k in zip(dilation, kernel, strict=True)]
        groups, channels = int(rng.integers(1, 4)), int(rng.integers(1, 9))
        lanes = int(rng.integers(1, 5) if number < 4 else rng.integers(5, 40))
        size = [int(rng.integers(d * (k - 1) + 1, n)) for d, k, n in zip(dilation, kernel, SIZES[dims], strict=True)]
        x, weight = numbers(rng, 9, groups * channels, *size), numbers(rng, groups * lanes, channels, *kernel)
        bias = numbers(rng, groups * lanes) if number % 2 else None
        print(x.shape, weight.shape, stride, padding, dilation, groups)
        check(adapter, x, weight, bias, stride, padding, dilation, groups)


@pytest.mark.parametrize("layout", ["channels last", "transposed", "every other", "reversed weights"])
def test_operands_of_any_layout_agree(adapter: EngineAdapter, rng: Any, layout: str, only_loops: None) -> None:
    for lanes in (3, 16, 33, 70):
        x, weight = numbers(rng, 3, 12, 19, 21), numbers(rng, lanes, 12, 3, 3)
        if layout == "channels last":
            x, weight = (t.to(memory_format=torch.channels_last) for t in (x, weight))
        elif layout == "transposed":
            x, weight = x.transpose(2, 3), weight.transpose(2, 3)
        elif layout == "every other":
            x, weight = numbers(rng, 3, 24, 38, 21)[:, ::2, 1::2], numbers(rng, lanes, 12, 6, 3)[:, :, ::2]
        else:
            weight = weight.transpose(0, 1).contiguous().transpose(0, 1)
        check(adapter, x, weight, numbers(rng, lanes), [2, 1], [1, 2], [1, 1], 1)
        check(adapter, x, weight[:, :, :1, :1], None, [1, 1], [0, 0], [1, 1], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_kernels_of_one_element_agree(
    adapter: EngineAdapter, rng: Any, dims: int, dtype: Any, only_loops: None
) -> None:
    for lanes, batch in ((1, 1), (40, 11)):
        x, weight = numbers(rng, batch, 31, *SIZES[dims]).to(dtype), numbers(rng, lanes, 31, *[1] * dims).to(dtype)
        plain = [1] * dims, [0] * dims, [1] * dims, 1
        check(adapter, x, weight, numbers(rng, lanes).to(dtype), *plain)
        check(adapter, x.transpose(1, -1)[:, :31], weight[:, : min(31, x.shape[-1])], None, *plain)
        if dims == 2:
            check(adapter, x.to(memory_format=torch.channels_last), weight, None, *plain)


def test_long_sums_and_many_pieces_agree(adapter: EngineAdapter, rng: Any, only_loops: None) -> None:
    """Sums over more elements than are added up at a time, and images of which a piece holds a few lines."""
    check(adapter, numbers(rng, 2, 257, 6, 5), numbers(rng, 35, 257, 3, 3), None, [1, 1], [1, 1], [1, 1], 1)
    check(adapter, numbers(rng, 2, 8, 150, 201), numbers(rng, 17, 8, 3, 5), numbers(rng, 17), [1, 2], [1, 2], [2, 1], 1)


def test_elements_that_are_not_finite_reach_the_same_results(
    adapter: EngineAdapter, rng: Any, only_loops: None
) -> None:
    for number in (math.inf, -math.inf, math.nan):
        x, weight = numbers(rng, 2, 5, 17, 19), numbers(rng, 20, 5, 3, 3)
        x[1, 3, 0, 18] = number
        check(adapter, x, weight, None, [1, 1], [1, 1], [1, 1], 1)


def test_elements_that_are_not_finite_stay_in_their_planes(adapter: EngineAdapter, rng: Any) -> None:
    for number in (math.inf, math.nan):
        x, weight = numbers(rng, 2, 6, 17, 19), numbers(rng, 6, 1, 3, 3)
        x[1, 3, 7, 18] = number
        check(adapter, x, weight, None, [1, 1], [1, 1], [1, 1], 6)


def test_long_work_on_planes_is_left_to_kernels_that_can_be_interrupted(
    adapter: EngineAdapter, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("planes were summed up")

    monkeypatch.setattr(kernels, "_MOST_PLANE_WORK", 10_000)
    monkeypatch.setattr(planes, "convolve", refuse)
    monkeypatch.setattr(planes, "weight_gradients", refuse)
    check(adapter, numbers(rng, 1, 3, 40, 40), numbers(rng, 3, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], 3)


def test_tables_of_large_pieces_are_not_kept(rng: Any) -> None:
    small, large = ((100, 4),), ((20_000, 4),)
    assert offsets(small) is offsets(small)
    assert offsets(large) is not offsets(large)
    for number in range(2_000):
        offsets(((7, number),))
    np.testing.assert_array_equal(offsets(((3, 100), (2, 4)), 4), [0, 4, 100, 104, 200, 204, 204, 204])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_depthwise_convolutions_of_many_pieces_agree(
    adapter: EngineAdapter, rng: Any, layout: torch.memory_format, only_loops: None
) -> None:
    for multiplier, stride in ((1, 1), (1, 2), (2, 3)):
        x = numbers(rng, 3, 40, 45, 47).to(memory_format=layout)
        weight = numbers(rng, 40 * multiplier, 1, 5, 3).to(memory_format=layout)
        check(adapter, x, weight, numbers(rng, 40 * multiplier), [stride, stride], [2, 1], [1, 1], 40)


def test_results_do_not_depend_on_the_number_of_threads(
    adapter: EngineAdapter, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = numbers(rng, 5, 16, 40, 40), numbers(rng, 24, 16, 3, 3)
    pairs = [1, 1], [1, 1], [1, 1]
    grad = numbers(rng, 5, 24, 40, 40)
    results = []
    for count in (1, 3):
        monkeypatch.setattr(threads, "count", lambda count=count: count)
        results.append(
            [
                call(adapter, "convolution", x, weight, None, *pairs, False, [0, 0], 1),
                call(adapter, "convolution", grad, weight, None, *pairs, True, [0, 0], 1),
                call(adapter, "_convolution_weight_backward", grad, x, [3, 3], *pairs, 1, False),
            ]
        )
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_every_tile_multiplies_as_double_precision_does(rng: Any) -> None:
    """Whichever tile is chosen elsewhere: all have the same results, for every remainder of rows, lanes and length."""
    products = compiled.kernels("images.products")
    for tile, lanes, length in itertools.product(products.SHAPES, (1, 15, 64, 81), (1, 1030)):
        rows, width = tile[0], tile[1] * products.LANES
        blocks, count = -(-lanes // width), 3 * rows - 1
        left, right = (rng.standard_normal(shape).astype("f") for shape in ((count, length), (length, lanes)))
        panels = np.empty((1, blocks, length, width), "f")
        places = np.arange(length) * right.strides[0]
        products.pack_all(0, blocks, right.ctypes.data, 0, right.strides[1], lanes, places, panels)
        starts = np.minimum(np.arange(3 * rows), count - 1) * left.strides[0]
        steps = np.arange(length) * left.strides[1]
        bias, exact = np.ones((blocks, width), "f"), left.astype(float) @ right
        for is_across in (False, True):  # lanes side by side, or rows
            out = np.full((lanes + 1, count) if is_across else (count, lanes + 1), -1.0, "f")
            result = out.T if is_across else out
            products.multiply[tile](
                0, 3, 3, address(left), 0, starts, steps, panels, bias, address(result),
                np.arange(count) * result.strides[0], result.strides[1], lanes, np.empty((96, width), "f"),
            )  # fmt: skip
            np.testing.assert_allclose(result[:, :-1], exact + 1, rtol=1e-5, atol=1e-5 * math.sqrt(length))
            assert (result[:, -1] == -1).all()
        totals, gradients = np.full((2, 1, blocks, 3 * rows, width), math.nan, "f"), np.empty((lanes, count), "f")
        edges, sides = np.array([0, 1, 3]), [np.repeat(address(side), 3) for side in (right, left)]
        products.accumulate[tile](
            0, 2 * blocks, True, edges, sides[0], right.strides[1], lanes, places, sides[1], 0, starts, steps, totals,
            np.empty((length, width), "f"),
        )  # fmt: skip
        products.add_up(0, blocks, totals, gradients.ctypes.data, 4 * count, lanes, np.arange(count) * 4)
        np.testing.assert_allclose(gradients.T, 3 * exact, rtol=1e-5, atol=3e-5 * math.sqrt(length))


def address(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.array([array.ctypes.data])


def test_images_of_several_turns_agree(
    adapter: EngineAdapter, rng: Any, only_loops: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources that are padded some samples at a time, and such of which not even a sample is padded at once."""
    for most in (1 << 16, 1 << 13):
        monkeypatch.setattr(pieces, "_TURN_BYTES", most)
        forget_pieces()
        for layout in (torch.contiguous_format, torch.channels_last):
            x, weight = (t.to(memory_format=layout) for t in (numbers(rng, 7, 9, 33, 29), numbers(rng, 20, 9, 3, 3)))
            check(adapter, x, weight, numbers(rng, 20), [1, 1], [1, 2], [1, 1], 1)
            check(adapter, x, weight, None, [2, 3], [2, 0], [1, 2], 1)
    forget_pieces()


def forget_pieces() -> None:
    """Have pieces made anew."""
    pieces.turns_of.cache_clear()
    kernels._work_of.cache_clear()


def test_pieces_are_alike_where_a_divisor_is_near() -> None:
    assert [pieces._divisor(16, most) for most in (1, 3, 5, 16)] == [1, 2, 4, 16]
    assert pieces._divisor(17, 5) == 5


def test_zeros_may_be_wider_than_images(adapter: EngineAdapter, rng: Any, only_loops: None) -> None:
    for groups in (1, 12):
        for padding in ([6, 1], [0, 9], [7, 8]):
            x, weight = numbers(rng, 30, 12, 5, 4), numbers(rng, 24 if groups == 1 else 12, 12 // groups, 3, 3)
            check(adapter, x, weight, None, [1, 1], padding, [1, 1], groups)
            check(adapter, x, weight, None, [3, 2], padding, [1, 1], groups)
