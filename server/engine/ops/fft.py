"""Discrete Fourier transforms: three primitives, whose derivatives are transforms too, and what is made of them."""

from __future__ import annotations

import functools

from server.engine import functional as F
from server.engine.array_library import fourier
from server.engine.operators import OPERATORS, Single
from server.engine.registry import comes_to, composite, implements
from telegrad_protocol.dtypes import get_default_dtype
from telegrad_protocol.layout import wrap_dims
from telegrad_protocol.ops import fft as ops

from .complex import conj

_C2C, _R2C, _C2R = OPERATORS["_fft_c2c"], OPERATORS["_fft_r2c"], OPERATORS["_fft_c2r"]


def _wrapped(dim, array):
    return tuple([d % array.ndim for d in dim])


@implements(
    ops._fft_c2c,
    input=lambda grad, dim, normalization, forward: F._fft_c2c(grad, dim, normalization, not forward),
)
def _fft_c2c(xp, input, dim, normalization, forward, *, out):
    fourier.complex_to_complex(xp, input, _wrapped(dim, input), normalization, forward, out)


def _r2c_backward(grad, input_meta, dim, normalization, onesided):
    if onesided:
        grad = _resized(grad, _padding(grad.shape, dim[-1:], (input_meta.shape[dim[-1]],)))
    return F.real(F._fft_c2c(grad, dim, normalization, False))


@implements(ops._fft_r2c, input=_r2c_backward)
def _fft_r2c(xp, input, dim, normalization, onesided, *, out):
    fourier.real_to_complex(xp, input, _wrapped(dim, input), normalization, onesided, out)


def _c2r_backward(grad, dim, normalization, last_dim_size):
    """Elements that stand for two of the whole signal have twice the gradient."""
    half = F._fft_r2c(grad, dim, normalization, True)
    doubled = (last_dim_size - 1) // 2
    if not doubled:
        return half
    weights = F.constant_pad_nd(
        F.full((doubled,), 2.0, dtype=grad.dtype, device=grad.device), (1, last_dim_size // 2 - doubled), 1.0
    )
    shape = [1] * half.ndim
    shape[dim[-1]] = weights.numel
    return half * F.view(weights, shape)


@implements(ops._fft_c2r, input=_c2r_backward)
def _fft_c2r(xp, input, dim, normalization, last_dim_size, *, out):
    axes = _wrapped(dim, input)
    if len(axes) > 1:
        partial = xp.empty(input.shape, input.dtype)
        fourier.complex_to_complex(xp, input, axes[:-1], normalization, False, partial)
        input = partial
    fourier.complex_to_real(xp, input, axes[-1:], normalization, out)


def _padding(shape, dims, lengths):
    """What trims or pads with zeros behind, along dimensions; empty where that changes nothing."""
    padding = [0] * (2 * len(shape))
    for d, length in zip(dims, lengths, strict=True):
        padding[2 * (len(shape) - 1 - d % len(shape)) + 1] = length - shape[d]
    return tuple(padding) if any(padding) else ()


def _resized(input, padding):
    return F.constant_pad_nd(input, padding) if padding else input


_REMEMBERED = 1 << 12


@functools.lru_cache(maxsize=_REMEMBERED)
def _request(name, input, s, dim, norm, forward):
    """The dimensions to transform, the padding that gives them their lengths, and by what the result is divided."""
    dims, lengths = ops.lengths_of(name, input, s, dim)
    return dims, _padding(input.shape, dims, lengths), ops.normalization(name, norm, forward)


@functools.lru_cache(maxsize=_REMEMBERED)
def _half_request(name, input, s, dim, norm, forward):
    """The same where the input is half of a Hermitian signal, and the length of the result's last dimension."""
    dims, lengths = ops.real_lengths(name, input, s, dim)
    given = (*lengths[:-1], lengths[-1] // 2 + 1)
    return dims, _padding(input.shape, dims, given), ops.normalization(name, norm, forward), lengths[-1]


def _floating(input):
    return input if input.dtype.is_differentiable else F._to_copy(input, dtype=get_default_dtype())


def _complex(input):
    input = _floating(input)
    return input if input.dtype.is_complex else F._to_copy(input, dtype=input.dtype.to_complex())


def _to_complex(forward, name, input, s, dim, norm):
    dims, padding, mode = _request(name, input.meta, s, dim, norm, forward)
    if not dims:
        return F.clone(_complex(input))
    resized = _resized(_floating(input), padding)
    if forward and not resized.dtype.is_complex:
        return F._fft_r2c(resized, dims, mode, False)
    return F._fft_c2c(_complex(resized), dims, mode, forward)


def _single_to_complex(forward, name, input, s, dim, norm):
    """The one transform that numbers need where they have their lengths."""
    dims, padding, mode = _request(name, input, s, dim, norm, forward)
    if not dims or padding or not input.dtype.is_differentiable:
        return None
    if input.dtype.is_complex:
        return Single(_C2C, lambda args: (args[0], dims, mode, forward))
    return Single(_R2C, lambda args: (args[0], dims, mode, False)) if forward else None


def _single_rfft(name, input, s, dim, norm):
    dims, padding, mode = _request(name, input, s, dim, norm, True)
    if padding or not input.dtype.is_differentiable:
        return None
    return Single(_R2C, lambda args: (args[0], dims, mode, True))


def _single_irfft(name, input, s, dim, norm):
    dims, padding, mode, length = _half_request(name, input, s, dim, norm, False)
    if padding or not input.dtype.is_complex:
        return None
    return Single(_C2R, lambda args: (args[0], dims, mode, length))


def _rfft(name, input, s, dim, norm):
    dims, padding, mode = _request(name, input.meta, s, dim, norm, True)
    return F._fft_r2c(_resized(_floating(input), padding), dims, mode, True)


def _ihfft(name, input, s, dim, norm):
    dims, padding, mode = _request(name, input.meta, s, dim, norm, False)
    half = conj(F._fft_r2c(_resized(_floating(input), padding), dims[-1:], mode, True))
    return F._fft_c2c(half, dims[:-1], mode, False) if len(dims) > 1 else half


def _irfft(name, input, s, dim, norm):
    dims, padding, mode, length = _half_request(name, input.meta, s, dim, norm, False)
    return F._fft_c2r(_resized(_complex(input), padding), dims, mode, length)


def _hfft(name, input, s, dim, norm):
    dims, padding, mode, length = _half_request(name, input.meta, s, dim, norm, True)
    half = _resized(_complex(input), padding)
    if len(dims) > 1:
        half = F._fft_c2c(half, dims[:-1], mode, True)
    return F._fft_c2r(conj(half), dims[-1:], mode, length)


_FUNCTIONS = {
    "fft": functools.partial(_to_complex, True), "ifft": functools.partial(_to_complex, False), "rfft": _rfft,
    "irfft": _irfft, "hfft": _hfft, "ihfft": _ihfft,
}  # fmt: skip


_SINGLE = {
    "fft": functools.partial(_single_to_complex, True), "ifft": functools.partial(_single_to_complex, False),
    "rfft": _single_rfft, "irfft": _single_irfft,
}  # fmt: skip


def _without_records(single, name, records, *given):
    return single(name, *given)


def _register(name, transform):
    public, single = f"fft.{name}", _SINGLE.get(name)

    @composite(getattr(ops, name))
    def one_dimensional(input, n, dim, norm):
        return transform(public, input, None if n is None else (n,), (dim,), norm)

    if single is not None:

        @comes_to(getattr(ops, name))
        def only_one(records, input, n, dim, norm):
            return single(public, input, None if n is None else (n,), (dim,), norm)

    for suffix in ("2", "n"):
        contract = getattr(ops, f"{name}{suffix}")
        composite(contract)(functools.partial(transform, f"{public}{suffix}"))
        if single is not None:
            comes_to(contract)(functools.partial(_without_records, single, f"{public}{suffix}"))


for _name, _transform in _FUNCTIONS.items():
    _register(_name, _transform)


@implements(ops.fftfreq)
def fftfreq(xp, n, d, *, dtype, device, out):
    numbers = xp.arange(n)
    numbers[(n + 1) // 2 :] -= n
    out[...] = numbers * (1.0 / (n * d))


@implements(ops.rfftfreq)
def rfftfreq(xp, n, d, *, dtype, device, out):
    out[...] = xp.arange(n // 2 + 1) * (1.0 / (n * d))


def _shifted(input, dim, share):
    dims = tuple(range(input.ndim)) if dim is None else wrap_dims("fft.fftshift", dim, input.ndim)
    if not dims or not input.ndim:
        return F.clone(input)
    return F.roll(input, tuple([share(input.shape[d]) for d in dims]), dims)


def _only_roll(input, dim, share):
    dims = tuple(range(input.ndim)) if dim is None else wrap_dims("fft.fftshift", dim, input.ndim)
    shifts = tuple([share(input.shape[d]) for d in dims])
    return Single(OPERATORS["roll"], lambda args: (args[0], shifts, dims)) if dims else None


@comes_to(ops.fftshift)
def _only_roll_by_half(records, input, dim):
    return _only_roll(input, dim, lambda size: size // 2)


@comes_to(ops.ifftshift)
def _only_roll_back(records, input, dim):
    return _only_roll(input, dim, lambda size: (size + 1) // 2)


@composite(ops.fftshift)
def fftshift(input, dim):
    return _shifted(input, dim, lambda size: size // 2)


@composite(ops.ifftshift)
def ifftshift(input, dim):
    return _shifted(input, dim, lambda size: (size + 1) // 2)
