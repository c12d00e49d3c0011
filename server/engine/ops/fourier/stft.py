"""The short-time Fourier transform and its inverse, as compositions of frames, windows and transforms."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.ops.complex import conj
from server.engine.ops.derivatives import with_zero_derivative
from server.engine.registry import composite, implements
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.ops.fourier import stft as ops


def _padded(window, n_fft, width, like):
    """The window in the middle of ``n_fft`` elements; None if it is all ones."""
    left = (n_fft - width) // 2
    if window is None:
        if width == n_fft:
            return None
        window = F.ones((width,), dtype=like.dtype.to_real(), device=like.device)
    return window if width == n_fft else F.constant_pad_nd(window, (left, n_fft - width - left))


def _at_both_ends(input, amount, mode):
    """The signals with ``amount`` elements before and after."""
    if mode == "constant":
        return F.constant_pad_nd(input, (amount, amount))
    if amount < input.shape[-1]:
        return F._pad_border(with_zero_derivative(input), input.ndim - 1, amount, amount, mode)
    batch = input.shape[:-1]
    padded = F.pad(F.reshape(input, (1, -1 if batch else 1, input.shape[-1])), (amount, amount), mode)
    return F.reshape(padded, (*batch, padded.shape[-1]))


@composite(ops.stft)
def stft(
    input, n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided, return_complex,
    align_to_window,
):  # fmt: skip
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    if center:
        input = _at_both_ends(input, n_fft // 2, pad_mode)
    elif align_to_window:
        input = _at_both_ends(input, (n_fft - width) // 2, "constant")
    whole = _padded(window, n_fft, width, input)
    frames = F.unfold(input, -1, n_fft, hop)
    frames = frames if whole is None else frames * whole
    is_half = not frames.dtype.is_complex if onesided is None else onesided
    if is_half:
        spectra = F._fft_r2c(frames, (-1,), int(normalized), True)
    else:
        spectra = F.fft_fft(frames, norm="ortho" if normalized else None)
    result = F.transpose(spectra, -2, -1)
    return F.view_as_real(result) if return_complex is False else result


def _overlapped(frames, hop):
    """The sums of frames that begin ``hop`` elements apart: (B, T, n) -> (B, n + hop (T - 1))"""
    if frames.dtype.is_complex:
        return F.complex(_overlapped(F.real(frames), hop), _overlapped(F.imag(frames), hop))
    count, size = frames.shape[-2:]
    length = size + hop * (count - 1)
    folded = F.fold(F.transpose(frames, -2, -1), (1, length), (1, size), stride=(1, hop))
    return F.reshape(folded, (frames.shape[0], length))


def _refuse_zeros(xp, envelope):
    if float(xp.abs(envelope).min()) <= 1e-11:
        raise ArgumentError("istft: window overlap add min is 0: the windows leave elements of the signal out")


def _by_envelope(grad, envelope):
    return grad / conj(envelope)


@implements(
    ops.over_envelope,
    input=_by_envelope,
    envelope=lambda grad, input, envelope: -_by_envelope(grad, envelope) * conj(input / envelope),
)
def over_envelope(xp, input, envelope, *, out):
    _refuse_zeros(xp, envelope)
    xp.divide(input, envelope, out=out)


@composite(ops.istft)
def istft(
    input, n_fft, hop_length, win_length, window, center, normalized, onesided, length, return_complex
):  # fmt: skip
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    batch = input.shape[:-2]
    spectra = F.transpose(input if batch else F.unsqueeze(input, 0), -2, -1)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = F.fft_ifft(spectra, norm=norm)
    else:
        frames = F.fft_irfft(spectra, n_fft, norm=norm)
    whole = _padded(window, n_fft, width, frames)
    if whole is None:
        whole = F.ones((n_fft,), dtype=frames.dtype.to_real(), device=frames.device)
    count = spectra.shape[-2]
    signal = _overlapped(frames * whole, hop)
    squares = F.expand(F.square(whole), (1, count, n_fft))
    envelope = F.reshape(_overlapped(squares, hop), (signal.shape[-1],))
    begin = n_fft // 2 if center else 0
    size = ops.signal_length(input.meta, n_fft, hop, center, length)
    kept = min(size, signal.shape[-1] - begin)
    signal, envelope = F.narrow(signal, -1, begin, kept), F.narrow(envelope, -1, begin, kept)
    result = F._over_envelope(signal, envelope)
    if size > kept:
        result = F.constant_pad_nd(result, (0, size - kept))
    return result if batch else F.squeeze(result, 0)
