"""Discrete Fourier transforms: three primitives, whose derivatives are transforms too, and what is made of them."""

from __future__ import annotations

import functools

from server.engine import functional as F
from server.engine.array_library import fourier
from server.engine.dispatcher import dispatch
from server.engine.operators import OPERATORS, Single
from server.engine.ops.complex import conj
from server.engine.registry import comes_to, composite, implements
from telegrad_protocol.dtypes import get_default_dtype
from telegrad_protocol.layout import wrap_dims
from telegrad_protocol.ops.fourier import fft as ops

_C2C, _R2C, _C2R, _FITTED = [OPERATORS[f"_fft_{name}"] for name in ("c2c", "r2c", "c2r", "fitted")]


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
    return _doubled(F._fft_r2c(grad, dim, normalization, True), dim, last_dim_size)


def _doubled(half, dim, last_dim_size):
    """The gradient by half of a signal: elements that stand for two of the whole signal have twice that by one."""
    doubled = (last_dim_size - 1) // 2
    if not doubled:
        return half
    weights = F.constant_pad_nd(
        F.full((doubled,), 2.0, dtype=half.dtype.to_real(), device=half.device), (1, last_dim_size // 2 - doubled), 1.0
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


def _fitted_backward(grad, input_meta, dim, normalization, forward, lengths, half):
    """By the transform in the other direction, of which as many elements are kept as were not trimmed."""
    is_complex = input_meta.dtype.is_complex
    if half and is_complex:
        result = _doubled(F._fft_fitted(grad, dim, normalization, not forward, lengths, True), dim, lengths[-1])
    else:
        if half:
            grad = _resized(grad, _padding(grad.shape, dim[-1:], lengths[-1:]))
        result = F._fft_c2c(grad, dim, normalization, not forward)
    result = result if is_complex else F.real(result)
    return _resized(result, _padding(result.shape, dim, [input_meta.shape[d] for d in dim]))


@implements(ops._fft_fitted, input=_fitted_backward)
def _fft_fitted(xp, input, dim, normalization, forward, lengths, half, *, out):
    axes, is_real = _wrapped(dim, input), input.dtype.kind != "c"
    if half and not is_real:
        whole = fourier.fitted(xp, input, axes, (*lengths[:-1], lengths[-1] // 2 + 1))
        _fft_c2r(xp, xp.conj(whole) if forward else whole, dim, normalization, lengths[-1], out=out)
        return
    whole = fourier.fitted(xp, input, axes, lengths)
    if not half:
        fourier.complex_to_complex(xp, whole.astype(out.dtype), axes, normalization, forward, out)
        return
    fourier.real_to_complex(xp, whole, axes, normalization, True, out)
    if not forward:
        xp.conjugate(out, out=out)


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
    """The dimensions to transform, their lengths, the padding that gives them these, and the mode of scaling."""
    dims, lengths = ops.lengths_of(name, input, s, dim)
    padding = _padding(input.shape, dims, lengths)
    return dims, lengths, padding, ops.normalization(name, norm, forward)


@functools.lru_cache(maxsize=_REMEMBERED)
def _half_request(name, input, s, dim, norm, forward):
    """The same where the input is half of a Hermitian signal; lengths are those of the result."""
    dims, lengths = ops.real_lengths(name, input, s, dim)
    given = (*lengths[:-1], lengths[-1] // 2 + 1)
    return dims, lengths, _padding(input.shape, dims, given), ops.normalization(name, norm, forward)


def _floating(input):
    return input if input.dtype.is_differentiable else F._to_copy(input, dtype=get_default_dtype())


def _complex(input):
    input = _floating(input)
    return input if input.dtype.is_complex else F._to_copy(input, dtype=input.dtype.to_complex())


def _is_at_once(input):
    """Whether one operation fits and transforms: on the host, where calls of small transforms cost the most."""
    return input.device.type == "cpu"


def _one_to_complex(input, request, forward):
    """The one operation that a transform to complex numbers is, and its arguments; None if there are several."""
    dims, lengths, padding, mode = request
    if not dims or not input.dtype.is_differentiable:
        return None
    is_complex = input.dtype.is_complex
    if padding or not (is_complex or forward):
        return (_FITTED, dims, mode, forward, lengths, False) if _is_at_once(input) else None
    return (_C2C, dims, mode, forward) if is_complex else (_R2C, dims, mode, False)


def _one_to_half(input, request, forward):
    """The same of a transform of real numbers, of which half is kept."""
    dims, lengths, padding, mode = request
    if not input.dtype.is_differentiable:
        return None
    if padding or not forward:
        return (_FITTED, dims, mode, forward, lengths, True) if _is_at_once(input) else None
    return _R2C, dims, mode, True


def _one_to_real(input, request, forward):
    """The same of a transform of half of a Hermitian signal."""
    dims, lengths, padding, mode = request
    if not input.dtype.is_complex:
        return None
    if padding or forward:
        return (_FITTED, dims, mode, forward, lengths, True) if _is_at_once(input) else None
    return _C2R, dims, mode, lengths[-1]


def _to_complex(forward, input, request):
    dims, _, padding, mode = request
    if not dims:
        return F.clone(_complex(input))
    resized = _resized(_floating(input), padding)
    if forward and not resized.dtype.is_complex:
        return F._fft_r2c(resized, dims, mode, False)
    return F._fft_c2c(_complex(resized), dims, mode, forward)


def _to_half(forward, input, request):
    dims, _, padding, mode = request
    resized = _resized(_floating(input), padding)
    if forward:
        return F._fft_r2c(resized, dims, mode, True)
    half = conj(F._fft_r2c(resized, dims[-1:], mode, True))
    return F._fft_c2c(half, dims[:-1], mode, False) if len(dims) > 1 else half


def _to_real(forward, input, request):
    dims, lengths, padding, mode = request
    half = _resized(_complex(input), padding)
    if not forward:
        return F._fft_c2r(half, dims, mode, lengths[-1])
    if len(dims) > 1:
        half = F._fft_c2c(half, dims[:-1], mode, True)
    return F._fft_c2r(conj(half), dims[-1:], mode, lengths[-1])


_FUNCTIONS = {
    "fft": (True, _request, _one_to_complex, _to_complex), "ifft": (False, _request, _one_to_complex, _to_complex),
    "rfft": (True, _request, _one_to_half, _to_half), "ihfft": (False, _request, _one_to_half, _to_half),
    "irfft": (False, _half_request, _one_to_real, _to_real), "hfft": (True, _half_request, _one_to_real, _to_real),
}  # fmt: skip
"""The direction of each function, what it asks for, the one operation that it may be, and those that it is else."""


def _register(name, forward, request_of, one_of, transform):
    def apply(public, input, s, dim, norm):
        request = request_of(public, input.meta, s, dim, norm, forward)
        one = one_of(input.meta, request, forward)
        return transform(forward, input, request) if one is None else dispatch(one[0], (input, *one[1:]))

    def only_one(public, records, input, s, dim, norm):
        one = one_of(input, request_of(public, input, s, dim, norm, forward), forward)
        return one and Single(one[0], lambda args: (args[0], *one[1:]))

    @comes_to(getattr(ops, name))
    def only_one_dimensional(records, input, n, dim, norm):
        return only_one(f"fft.{name}", records, input, None if n is None else (n,), (dim,), norm)

    @composite(getattr(ops, name))
    def one_dimensional(input, n, dim, norm):
        return apply(f"fft.{name}", input, None if n is None else (n,), (dim,), norm)

    for suffix in ("2", "n"):
        contract, public = getattr(ops, f"{name}{suffix}"), f"fft.{name}{suffix}"
        composite(contract)(functools.partial(apply, public))
        comes_to(contract)(functools.partial(only_one, public))


for _name, _described in _FUNCTIONS.items():
    _register(_name, *_described)


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
