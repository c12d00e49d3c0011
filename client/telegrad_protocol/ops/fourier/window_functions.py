"""Contracts of window functions: those of ``signal.windows``, and the older ones at the top level."""

from __future__ import annotations

from telegrad_protocol.dtypes import DType, float32, float64, get_default_dtype
from telegrad_protocol.errors import ArgumentError, DTypeError
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops.contract import Scalar, op
from telegrad_protocol.ops.creation import new


def _window(name: str, M: int, dtype: DType | None, device: Device | None) -> Meta:
    if M < 0:
        raise ArgumentError(f"{name}: requires non-negative window length, got M={M}")
    if (dtype or get_default_dtype()) not in (float32, float64):
        raise ArgumentError(f"{name}: expects float32 or float64 dtypes, got: {dtype or get_default_dtype()}")
    return new(name, (M,), dtype, device)


def _check_positive(name: str, label: str, value: float) -> None:
    if value <= 0:
        raise ArgumentError(f"signal.windows.{name}: {label} must be positive, got: {value:g} instead.")


@op(name="signal_windows_bartlett", method=False, out=False, differentiable=False, module="signal.windows")
def bartlett(M: int, *, sym: bool = True, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a triangular window of ``M`` points; without ``sym`` one period of a periodic window."""
    return _window("signal.windows.bartlett", M, dtype, device)


@op(name="signal_windows_blackman", method=False, out=False, differentiable=False, module="signal.windows")
def blackman(M: int, *, sym: bool = True, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a Blackman window of ``M`` points; without ``sym`` one period of a periodic window."""
    return _window("signal.windows.blackman", M, dtype, device)


@op(name="signal_windows_cosine", method=False, out=False, differentiable=False, module="signal.windows")
def cosine(M: int, *, sym: bool = True, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a window of ``M`` points that is half a sine; without ``sym`` one period of a periodic window."""
    return _window("signal.windows.cosine", M, dtype, device)


@op(name="signal_windows_exponential", method=False, out=False, differentiable=False, module="signal.windows")
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: DType | None = None,
    device: Device | None = None,
) -> Meta:  # fmt: skip
    """Make a window of ``M`` points that decays by exp(-abs(n - center) / tau)."""
    if sym and center is not None:
        raise ArgumentError("signal.windows.exponential: Center must be None for symmetric windows")
    _check_positive("exponential", "Tau", tau)
    return _window("signal.windows.exponential", M, dtype, device)


@op(name="signal_windows_gaussian", method=False, out=False, differentiable=False, module="signal.windows")
def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a Gaussian window of ``M`` points with a standard deviation of ``std`` points."""
    _check_positive("gaussian", "Standard deviation", std)
    return _window("signal.windows.gaussian", M, dtype, device)


@op(name="signal_windows_general_cosine", method=False, out=False, differentiable=False, module="signal.windows")
def general_cosine(
    M: int, *, a: list[Scalar], sym: bool = True, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a window of ``M`` points that is the sum of cosines with the coefficients ``a`` and alternating signs."""
    if not a:
        raise ArgumentError("signal.windows.general_cosine: Coefficients cannot be empty")
    return _window("signal.windows.general_cosine", M, dtype, device)


@op(name="signal_windows_general_hamming", method=False, out=False, differentiable=False, module="signal.windows")
def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a window of ``M`` points: alpha - (1 - alpha) * cos(2 pi n / (M - 1))."""
    return _window("signal.windows.general_hamming", M, dtype, device)


@op(name="signal_windows_hamming", method=False, out=False, differentiable=False, module="signal.windows")
def hamming(M: int, *, sym: bool = True, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a Hamming window of ``M`` points; without ``sym`` one period of a periodic window."""
    return _window("signal.windows.hamming", M, dtype, device)


@op(name="signal_windows_hann", method=False, out=False, differentiable=False, module="signal.windows")
def hann(M: int, *, sym: bool = True, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a Hann window of ``M`` points; without ``sym`` one period of a periodic window."""
    return _window("signal.windows.hann", M, dtype, device)


@op(name="signal_windows_kaiser", method=False, out=False, differentiable=False, module="signal.windows")
def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a Kaiser window of ``M`` points, whose shape ``beta`` tells; without ``sym`` one period of it."""
    if beta < 0:
        raise ArgumentError(f"signal.windows.kaiser: beta must be non-negative, got: {beta:g} instead.")
    return _window("signal.windows.kaiser", M, dtype, device)


@op(name="signal_windows_nuttall", method=False, out=False, differentiable=False, module="signal.windows")
def nuttall(M: int, *, sym: bool = True, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make a Nuttall window of ``M`` points; without ``sym`` one period of a periodic window."""
    return _window("signal.windows.nuttall", M, dtype, device)


def _older(name: str, length: int, dtype: DType | None, device: Device | None) -> Meta:
    if length < 0:
        raise ArgumentError(f"{name}: requires a non-negative window_length, got {length}")
    if not (dtype or get_default_dtype()).is_floating_point:
        raise DTypeError(f"{name}: expects floating point dtypes, got {(dtype or get_default_dtype()).name}")
    return new(name, (length,), dtype, device)


@op(method=False, differentiable=False)
def hann_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a Hann window; if ``periodic`` one period of a window for spectral analysis, else a symmetric one."""
    return _older("hann_window", window_length, dtype, device)


@op(method=False, differentiable=False)
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: DType | None = None,
    device: Device | None = None,
) -> Meta:  # fmt: skip
    """Make a Hamming window: alpha - beta * cos(2 pi n / N), where N is the length, or one less if not ``periodic``."""
    return _older("hamming_window", window_length, dtype, device)


@op(method=False, differentiable=False)
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a Blackman window; if ``periodic`` one period of a window for spectral analysis, else a symmetric one."""
    return _older("blackman_window", window_length, dtype, device)


@op(method=False, differentiable=False)
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: Device | None = None
) -> Meta:
    """Make a triangular window; if ``periodic`` one period of a window for spectral analysis, else a symmetric one."""
    return _older("bartlett_window", window_length, dtype, device)


@op(method=False, differentiable=False)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DType | None = None,
    device: Device | None = None,
) -> Meta:  # fmt: skip
    """Make a Kaiser window, whose shape ``beta`` tells; if ``periodic`` one period of it, else a symmetric one."""
    return _older("kaiser_window", window_length, dtype, device)
