"""Fourier transforms where the operator database does not look: frequencies, layouts, many dimensions, cuFFT."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError

from .adapters import EngineAdapter
from .harness import Comparison

FUNCTIONS = ["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"]


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_agree_with_pytorch(adapter: EngineAdapter, n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        mine = adapter.function(f"fft_{name}")(n, 0.25)
        np.testing.assert_array_equal(adapter.numpy(mine), getattr(torch.fft, name)(n, 0.25).numpy())


def test_what_cannot_be_transformed_is_refused(adapter: EngineAdapter) -> None:
    F, x = adapter.functional, adapter.tensor(torch.ones(3, 4))
    with pytest.raises(ArgumentError, match="norm must be None"):
        F.fft_fft(x, norm="unitary")
    with pytest.raises(ShapeError, match="no data points"):
        F.fft_fft(x, 0)
    with pytest.raises(ShapeError, match="no data points"):
        F.fft_fft(x, -1)
    with pytest.raises(ShapeError, match="no data points"):
        F.fft_irfft(adapter.tensor(torch.ones(3, 1)))
    with pytest.raises(DTypeError, match="expected real numbers"):
        F.fft_rfft(adapter.tensor(torch.ones(3, dtype=torch.complex64)))
    with pytest.raises(DTypeError, match="half precision"):
        F.fft_fft(adapter.tensor(torch.ones(4).half()))
    with pytest.raises(ShapeError, match="must have the same length"):
        F.fft_fftn(x, (2, 2), (0,))


def _signals(name: str, rng: np.random.Generator) -> Iterator[tuple[torch.Tensor, tuple[int, ...]]]:
    """Signals of awkward shapes and layouts, and dimensions to transform."""
    for shape in ((8,), (7,), (3, 1, 6), (5, 4, 3), (2, 3, 2, 4, 3), (24, 6, 2)):
        numbers = rng.standard_normal(shape)
        signal = torch.from_numpy(numbers if name[0] in "ri" and name != "irfftn" else numbers + 1j * numbers[::-1])
        if name == "ihfftn":
            signal = torch.from_numpy(numbers)
        for count in range(1, len(shape) + 1):
            for dim in itertools.islice(itertools.permutations(range(len(shape)), count), 8):
                if name in ("irfftn", "hfftn") and shape[dim[-1]] == 1:
                    continue
                yield signal, dim
                yield signal.mT.contiguous().mT if len(shape) > 1 else signal, dim


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_dimensions_of_any_layout_are_transformed(
    adapter: EngineAdapter, name: str, rng: np.random.Generator
) -> None:
    _compare(adapter, name, rng)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FUNCTIONS)
def test_cufft_transforms_any_dimensions_of_any_layout(cuda_device: str, name: str, rng: np.random.Generator) -> None:
    _compare(EngineAdapter(cuda_device), name, rng)


def _compare(adapter: EngineAdapter, name: str, rng: np.random.Generator) -> None:
    comparison = Comparison(adapter, check_strides=False, sums=True)
    for signal, dim in _signals(name, rng):
        for norm in (None, "ortho"):
            theirs, ours = getattr(torch.fft, name), adapter.function(f"fft_{name}")
            comparison.run(theirs, ours, (signal,), {"dim": dim, "norm": norm}, gradients=False)


def test_a_gradient_flows_through_a_session(tg: Any, rng: np.random.Generator) -> None:
    numbers = rng.standard_normal((3, 10))
    mine, theirs = tg.tensor(numbers, requires_grad=True), torch.tensor(numbers, requires_grad=True)
    (tg.fft.irfft(tg.fft.rfft(mine, dim=1) ** 2, 10).square().sum()).backward()
    (torch.fft.irfft(torch.fft.rfft(theirs, dim=1) ** 2, 10).square().sum()).backward()
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-9, atol=1e-9)


def _given(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> torch.Tensor:
    """Random numbers of a type, in half of the cases with dimensions that are the other way round in memory."""
    parts = rng.standard_normal((2, *shape))
    numbers = (parts[0] + 1j * parts[1] if dtype.startswith("complex") else parts[0]).astype(dtype)
    tensor = torch.from_numpy(numbers)
    return tensor if rng.random() < 0.5 else tensor.permute(*range(tensor.ndim)[::-1]).contiguous().permute(
        *range(tensor.ndim)[::-1]
    )  # fmt: skip


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_signals_are_padded_and_trimmed_in_either_direction(
    adapter: EngineAdapter, name: str, rng: np.random.Generator
) -> None:
    comparison = Comparison(adapter, check_strides=False, sums=True)
    types = ["float32", "float64"] + ["complex64", "complex128"] * (name not in ("rfft", "ihfft"))
    for shape, delta in itertools.product([(5,), (3, 4), (2, 3, 20), (700, 3), (40, 31)], (None, 0, -1, 3)):
        for suffix, dtype in itertools.product(("", "2", "n")[: 2 * len(shape) - 1], types):
            x, norm = _given(shape, dtype, rng), ("backward", "ortho", "forward")[rng.integers(3)]
            dims = (-1,) if suffix == "" else (-2, -1)
            lengths = None if delta is None else [x.shape[d] + delta for d in dims]
            sizes = {"n": lengths and lengths[0]} if suffix == "" else {"s": lengths, "dim": dims}
            if lengths is None and name in ("irfft", "hfft") and x.shape[-1] == 1:
                continue
            theirs, ours = getattr(torch.fft, name + suffix), adapter.function(f"fft_{name}{suffix}")
            for _ in range(2):  # the second time by a plan
                comparison.run(theirs, ours, (x,), {**sizes, "norm": norm}, gradients=False)


@pytest.mark.parametrize("name", ["fft", "ifft", "ihfft", "rfft", "hfft", "irfft", "hfft2", "ihfft2", "ifftn"])
def test_gradients_of_padded_and_trimmed_signals(tg: Any, name: str, rng: np.random.Generator) -> None:
    is_half = name.startswith(("hfft", "irfft"))
    parts = rng.standard_normal((2, 4, 5))
    numbers = parts[0] + 1j * parts[1] if is_half else parts[0]
    for delta in (0, 3, -2):
        length = (8 if is_half else 5) + delta
        sizes = {"s": (4 + delta, length)} if name[-1] in "2n" else {"n": length}
        gradients = []
        for library, given in ((tg, tg.tensor(numbers)), (torch, torch.tensor(numbers))):
            given.requires_grad_()
            size = getattr(library.fft, name)(given, **sizes).abs()
            (first,) = library.autograd.grad((size**3).sum(), given, create_graph=True)
            (second,) = library.autograd.grad((first.abs() ** 2).sum(), given)
            gradients.append([np.asarray(each.detach().tolist()) for each in (first, second)])
        for mine, theirs in zip(*gradients, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-8)
