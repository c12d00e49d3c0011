"""Contracts of the short-time Fourier transform and its inverse."""

from __future__ import annotations

from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, DTypeError, ShapeError
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.contract import op
from telegrad_protocol.ops.linear_algebra.matrices import column_major


def _is_complex(*operands: Meta | None) -> bool:
    return any(operand is not None and operand.dtype.is_complex for operand in operands)


def _check_frames(name: str, n_fft: int, hop: int, win_length: int, window: Meta | None) -> None:
    if hop <= 0:
        raise ArgumentError(f"{name}: expected hop_length > 0, got {hop}")
    if not 0 < win_length <= n_fft:
        raise ArgumentError(f"{name}: expected 0 < win_length <= n_fft, got win_length={win_length} and n_fft={n_fft}")
    if window is not None and window.shape != (win_length,):
        raise ShapeError(f"{name}: expected a 1D window tensor of {win_length} elements, got {window}")


def _check_sides(name: str, onesided: bool | None, *operands: Meta | None) -> bool:
    is_complex = _is_complex(*operands)
    if onesided and is_complex:
        raise ArgumentError(f"{name}: cannot have onesided output if window or input is complex")
    return not is_complex if onesided is None else onesided


@op
def stft(
    input: Meta, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Meta | None = None,
    center: bool = True, pad_mode: str | None = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Meta:  # fmt: skip
    """Compute the Fourier transforms of windows of a signal that are ``hop_length`` apart: (..., L) -> (..., N, T)."""
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if not input.dtype.is_differentiable or input.ndim not in (1, 2):
        raise ShapeError(f"stft: expected a floating point or complex tensor of 1 or 2 dimensions, got {input}")
    if return_complex is None and not _is_complex(input, window):
        raise ArgumentError("stft requires the return_complex parameter be given for real inputs")
    if center and align_to_window is not None:
        raise ArgumentError("stft: align_to_window should only be set when center = false")
    length = input.shape[-1]
    if center:
        pad = n_fft // 2
        if pad_mode is None:
            raise ArgumentError("stft: pad_mode says how a signal is padded, and may be None with center=False only")
        if pad_mode == "reflect" and pad >= length:
            raise ShapeError(f"stft: padding of {pad} should be less than the length of {input}")
        length += 2 * pad
    if not 0 < n_fft <= length:
        raise ArgumentError(f"stft: expected 0 < n_fft <= {length}, got n_fft={n_fft}")
    _check_frames("stft", n_fft, hop, width, window)
    sides = _check_sides("stft", onesided, input, window)
    count = 1 + (length - (width if align_to_window else n_fft)) // hop
    shape = (*input.shape[:-1], n_fft // 2 + 1 if sides else n_fft, count)
    dtype = _wider(input, window).to_complex()
    result = column_major(input.like(dtype=dtype), shape)
    if return_complex is not False:
        return result
    return input.like((*shape, 2), dtype.to_real(), strides=(*(2 * stride for stride in result.strides), 1))


def _wider(input: Meta, window: Meta | None) -> DType:
    """Return the real type of a transform."""
    return input.dtype.to_real() if window is None else max(
        input.dtype.to_real(), window.dtype.to_real(), key=lambda dtype: dtype.itemsize
    )  # fmt: skip


def signal_length(input: Meta, n_fft: int, hop: int, center: bool, length: int | None) -> int:
    """Return the length of the signal that ``istft`` makes."""
    whole = n_fft + hop * (input.shape[-1] - 1)
    if length is not None:
        return length
    return whole - 2 * (n_fft // 2) if center else whole


@op
def istft(
    input: Meta, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Meta | None = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Meta:  # fmt: skip
    """Compute the signal of which ``input`` is the short-time Fourier transform: (..., N, T) -> (..., L)."""
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if not input.dtype.is_complex:
        raise DTypeError(f"istft: requires a complex-valued input tensor, got {input}")
    if not input.numel or input.ndim not in (2, 3):
        raise ShapeError(f"istft: expected a tensor of 2 or 3 dimensions that is not empty, got {input}")
    _check_frames("istft", n_fft, hop, width, window)
    if hop > width:
        raise ArgumentError(f"istft: expected 0 < hop_length <= win_length, got {hop} and {width}")
    sides = input.shape[-2] != n_fft if onesided is None else onesided
    if return_complex and sides:
        raise ArgumentError("istft: cannot have onesided output if window or input is complex")
    if not return_complex and _is_complex(window):
        raise DTypeError("istft: complex windows are incompatible with return_complex=False")
    wanted = n_fft // 2 + 1 if sides else n_fft
    if input.shape[-2] != wanted:
        raise ShapeError(f"istft: expected the frequency dimension (3rd to the last) of {input} to be {wanted}")
    size = signal_length(input, n_fft, hop, center, length)
    if size <= 0:
        raise ArgumentError(f"istft: the signal would have {size} elements")
    dtype = _wider(input, window)
    return input.like((*input.shape[:-2], size), dtype.to_complex() if return_complex else dtype)


@op(name="_over_envelope", method=False, out=False)
def over_envelope(input: Meta, envelope: Meta) -> Meta:
    """Divide sums of windowed frames by the sum of the squared windows; refuse one that is 0 somewhere."""
    if input.shape[-1:] != envelope.shape:
        raise ShapeError(f"istft: {input} and {envelope} do not fit")
    return input.like()
