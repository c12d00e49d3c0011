"""Windows and short-time Fourier transforms where the operator database does not look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError, TelegradError

from .adapters import EngineAdapter
from .harness import Comparison

pytestmark = [
    pytest.mark.filterwarnings("ignore:A window was not provided:UserWarning"),
    pytest.mark.filterwarnings("ignore:stft with return_complex=False:UserWarning"),
    pytest.mark.filterwarnings("ignore:The length of signal is shorter:UserWarning"),
]


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_older_windows_agree_with_pytorch(adapter: EngineAdapter, name: str, periodic: bool, length: int) -> None:
    theirs, ours = getattr(torch, f"{name}_window"), adapter.function(f"{name}_window")
    for more in ({}, {"dtype": torch.float64}):
        Comparison(adapter).run(theirs, ours, (length, periodic), dict(more), gradients=False)


def test_windows_with_parameters_agree_with_pytorch(adapter: EngineAdapter) -> None:
    for name, args in (("hamming_window", (9, True, 0.6, 0.3)), ("kaiser_window", (9, False, 3.0))):
        Comparison(adapter).run(getattr(torch, name), adapter.function(name), args, {}, gradients=False)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "message"),
    [
        ("signal_windows_hann", (-1,), {}, "non-negative window length"),
        ("signal_windows_hann", (3,), {"dtype": torch.float16}, "expects float32 or float64"),
        ("signal_windows_gaussian", (3,), {"std": -1.0}, "must be positive"),
        ("signal_windows_exponential", (3,), {"center": 1.0}, "Center must be None for symmetric"),
        ("signal_windows_general_cosine", (3,), {"a": []}, "cannot be empty"),
        ("signal_windows_kaiser", (3,), {"beta": -1.0}, "beta must be non-negative"),
        ("hann_window", (3,), {"dtype": torch.int64}, "expects floating point"),
    ],
)
def test_windows_that_make_no_sense_are_refused(
    adapter: EngineAdapter, name: str, args: Any, kwargs: Any, message: str
) -> None:
    converted = {key: adapter.convert(value) for key, value in kwargs.items()}
    with pytest.raises(TelegradError, match=message):
        adapter.function(name)(*args, **converted)


OPTIONS: list[dict[str, Any]] = [
    {}, {"hop_length": 3}, {"win_length": 6}, {"center": False}, {"normalized": True}, {"onesided": False},
    {"center": False, "win_length": 4, "align_to_window": True}, {"pad_mode": "constant"}, {"pad_mode": "replicate"},
    {"return_complex": False},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", [(40,), (3, 40)])
def test_transforms_of_frames_agree_with_pytorch(
    adapter: EngineAdapter, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    signal = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    window = torch.rand(options.get("win_length", 8), dtype=torch.float64, requires_grad=True)
    comparison = Comparison(adapter, check_strides=False, sums=True)
    kwargs = {"return_complex": True, **options}
    comparison.run(torch.stft, adapter.functional.stft, (signal, 8), {"window": window, **kwargs})
    comparison.run(torch.stft, adapter.functional.stft, (signal, 8), kwargs)


@pytest.mark.parametrize("options", [{}, {"length": 33}, {"length": 50}, {"normalized": True}, {"onesided": False}])
@pytest.mark.parametrize("shape", [(40,), (3, 40)])
def test_signals_are_made_of_their_transforms(
    adapter: EngineAdapter, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    signal, window = torch.randn(shape, dtype=torch.float64), torch.hann_window(8, dtype=torch.float64) + 0.1
    same = {key: value for key, value in options.items() if key != "length"}
    spectrum = torch.stft(signal, 8, 2, window=window, return_complex=True, **same).requires_grad_()
    window.requires_grad_()
    Comparison(adapter, check_strides=False, sums=True).run(
        torch.istft, adapter.functional.istft, (spectrum, 8, 2), {"window": window, **options}
    )


def test_a_complex_signal_comes_back(adapter: EngineAdapter) -> None:
    signal = torch.randn(64, dtype=torch.complex128)
    window = adapter.tensor(torch.hann_window(16, dtype=torch.float64))
    spectrum = adapter.functional.stft(adapter.tensor(signal), 16, window=window)
    mine = adapter.functional.istft(spectrum, 16, window=window, return_complex=True)
    np.testing.assert_allclose(adapter.numpy(mine), signal.numpy(), atol=1e-12)


def test_transforms_that_make_no_sense_are_refused(adapter: EngineAdapter) -> None:
    F, signal = adapter.functional, adapter.tensor(torch.randn(20))
    spectrum = F.stft(signal, 8, return_complex=True)
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: F.stft(signal, 8), ArgumentError, "requires the return_complex parameter"),
        (lambda: F.stft(signal, 8, 0, return_complex=True), ArgumentError, "hop_length > 0"),
        (lambda: F.stft(signal, 8, win_length=9, return_complex=True), ArgumentError, "win_length <= n_fft"),
        (lambda: F.stft(signal, 80, return_complex=True), ShapeError, "padding of 40"),
        (lambda: F.stft(signal, 8, return_complex=True, align_to_window=True), ArgumentError, "center = false"),
        (lambda: F.stft(signal, 8, pad_mode=None, return_complex=True), ArgumentError, "with center=False only"),
        (lambda: F.istft(F.view_as_real(spectrum), 8), DTypeError, "complex-valued input"),
        (lambda: F.istft(spectrum, 10), ShapeError, "frequency dimension"),
        (lambda: F.istft(spectrum, 8, window=adapter.tensor(torch.zeros(8))), ArgumentError, "window overlap add min"),
    ]
    for call, kind, message in refused:
        with pytest.raises(kind, match=message):
            call()


def test_a_program_filters_sound(tg: Any, rng: np.random.Generator) -> None:
    samples = rng.standard_normal(400)
    window = tg.signal.windows.hann(64, sym=False, dtype=tg.float64)
    np.testing.assert_allclose(window.numpy(), tg.hann_window(64, dtype=tg.float64).numpy())
    spectrum = tg.tensor(samples).stft(64, 16, window=window, return_complex=True)
    assert spectrum.shape == (33, 26)
    back = tg.istft(spectrum, 64, 16, window=window, length=400)
    np.testing.assert_allclose(back.numpy(), samples, atol=1e-9)


def test_a_signal_that_is_not_padded_needs_no_mode(adapter: EngineAdapter) -> None:
    signal = torch.randn(40, dtype=torch.float64)
    mine = adapter.functional.stft(adapter.tensor(signal), 8, center=False, pad_mode=None, return_complex=True)
    theirs = torch.stft(signal, 8, center=False, pad_mode=None, return_complex=True)  # type: ignore[arg-type]
    np.testing.assert_allclose(adapter.numpy(mine), theirs.numpy(), atol=1e-12)
