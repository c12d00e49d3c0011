"""Contracts of discrete Fourier transforms: three primitives as cuFFT has them, and the functions of ``fft``."""

from __future__ import annotations

from telegrad_protocol.dtypes import FLOAT, DType, bfloat16, complex32, float16, get_default_dtype
from telegrad_protocol.errors import ArgumentError, DimensionError, DTypeError, ShapeError
from telegrad_protocol.layout import Size, wrap_dims
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops.contract import Op, op
from telegrad_protocol.ops.creation import new

Lengths = tuple[int, ...]
_MODES = {None: 0, "backward": 0, "ortho": 1, "forward": 2}


def normalization(name: str, norm: str | None, forward: bool) -> int:
    """Return by what a transform divides: 0 for nothing, 1 for the root of its length, 2 for its length."""
    if norm not in _MODES:
        raise ArgumentError(f"{name}: norm must be None, 'backward', 'ortho' or 'forward', not {norm!r}")
    mode = _MODES[norm]
    return mode if forward or mode == 1 else 2 - mode


def _complex(name: str, input: Meta) -> DType:
    """Return the complex type in which an input is transformed."""
    _check_precision(name, input)
    return (input.dtype if input.dtype.category >= FLOAT else get_default_dtype()).to_complex()


def _check_precision(name: str, input: Meta) -> None:
    if input.dtype in (float16, bfloat16, complex32):
        wanted = "complex64" if input.dtype is complex32 else "float32"
        raise DTypeError(f"{name}: half precision is not transformed, got {input}; convert it to {wanted}")


def _check_primitive(name: str, input: Meta, dim: Size, mode: int) -> Size:
    _check_precision(name, input)
    dims = wrap_dims(name, dim, input.ndim)
    if not dims or not input.ndim or not 0 <= mode <= 2:
        raise ArgumentError(f"{name}: expected dimensions of {input} and a normalization of 0, 1 or 2")
    if any(input.shape[d] < 1 for d in dims):
        raise ShapeError(f"{name}: there are no data points to transform in {input} along {list(dim)}")
    return dims


def _resized(shape: Size, dim: int, length: int) -> Size:
    return (*shape[:dim], length, *shape[dim + 1 :])


@op(method=False, out=False)
def _fft_c2c(input: Meta, dim: Size, normalization: int, forward: bool) -> Meta:
    """Transform complex numbers along dimensions; ``normalization`` is 0, 1 or 2 as ``normalization`` returns it."""
    dims = _check_primitive("_fft_c2c", input, dim, normalization)
    if not input.dtype.is_complex or not dims:
        raise DTypeError(f"_fft_c2c: expected complex numbers, got {input}")
    return input.like()


@op(method=False, out=False)
def _fft_r2c(input: Meta, dim: Size, normalization: int, onesided: bool) -> Meta:
    """Transform real numbers along dimensions; ``onesided`` keeps n // 2 + 1 elements of the last one."""
    dims = _check_primitive("_fft_r2c", input, dim, normalization)
    if not input.dtype.is_floating_point:
        raise DTypeError(f"_fft_r2c: expected floating-point numbers, got {input}")
    length = input.shape[dims[-1]]
    return input.like(
        _resized(input.shape, dims[-1], length // 2 + 1 if onesided else length), _complex("_fft_r2c", input)
    )


@op(method=False, out=False)
def _fft_c2r(input: Meta, dim: Size, normalization: int, last_dim_size: int) -> Meta:
    """Transform one half of a Hermitian signal back to ``last_dim_size`` real numbers in the last dimension."""
    dims = _check_primitive("_fft_c2r", input, dim, normalization)
    if not input.dtype.is_complex:
        raise DTypeError(f"_fft_c2r: expected complex numbers, got {input}")
    if last_dim_size < 1 or input.shape[dims[-1]] != last_dim_size // 2 + 1:
        raise ShapeError(f"_fft_c2r: {input} is not half of {last_dim_size} numbers along dimension {dims[-1]}")
    return input.like(_resized(input.shape, dims[-1], last_dim_size), input.dtype.to_real())


@op(method=False, out=False)
def _fft_fitted(input: Meta, dim: Size, normalization: int, forward: bool, lengths: Size, half: bool) -> Meta:
    """Transform signals of any lengths, padded with zeros or trimmed to ``lengths``, in either direction.

    With ``half`` the last dimension has half of a Hermitian signal in place of its complex numbers: that of the result
    if the input is real, and that of the input, of which the result is the whole signal's real transform, if not.
    """
    dims = _check_primitive("_fft_fitted", input, dim, normalization)
    if not input.dtype.is_differentiable or len(dims) != len(lengths):
        raise ArgumentError(
            f"_fft_fitted: expected floating-point numbers and a length for each dimension, got {input}"
        )
    check_lengths("_fft_fitted", lengths)
    if not half:
        return _result("_fft_fitted", input, dims, lengths, _complex("_fft_fitted", input))
    if input.dtype.is_complex:
        return _result("_fft_fitted", input, dims, lengths, input.dtype.to_real())
    kept = (*lengths[:-1], lengths[-1] // 2 + 1)
    return _result("_fft_fitted", input, dims, kept, _complex("_fft_fitted", input))


def lengths_of(name: str, input: Meta, s: Size | None, dim: Size | None) -> tuple[Size, Lengths]:
    """Return the dimensions that a transform takes, and the lengths that they are padded or trimmed to."""
    if dim is None:
        count = input.ndim if s is None else len(s)
        if count > input.ndim:
            raise ShapeError(f"{name}: {count} lengths are too many for {input}")
        dims = tuple(range(input.ndim - count, input.ndim))
    else:
        dims = wrap_dims(name, dim, input.ndim) if input.ndim else dim
    if dims and not input.ndim:
        raise DimensionError(f"{name}: Dimension specified as {dims[0]} but tensor has no dimensions")
    if s is not None and len(s) != len(dims):
        raise ShapeError(f"{name}: dim {list(dims)} and s {list(s)} must have the same length")
    given = (-1,) * len(dims) if s is None else s
    return dims, tuple(input.shape[d] if length == -1 else length for d, length in zip(dims, given, strict=True))


def check_lengths(name: str, lengths: Lengths) -> None:
    """Refuse to transform no data points."""
    if any(length < 1 for length in lengths):
        raise ShapeError(f"{name}: there are no data points to transform: the lengths are {list(lengths)}")


def _result(name: str, input: Meta, dims: Size, lengths: Lengths, dtype: DType) -> Meta:
    shape = list(input.shape)
    for d, length in zip(dims, lengths, strict=True):
        shape[d] = length
    return input.like(shape, dtype)


def _to_complex(name: str, input: Meta, s: Size | None, dim: Size | None, norm: str | None) -> Meta:
    normalization(name, norm, True)
    dims, lengths = lengths_of(name, input, s, dim)
    check_lengths(name, lengths)
    return _result(name, input, dims, lengths, _complex(name, input))


def _to_half(name: str, input: Meta, s: Size | None, dim: Size | None, norm: str | None) -> Meta:
    if input.dtype.is_complex:
        raise DTypeError(f"{name}: expected real numbers, got {input}")
    full = _to_complex(name, input, s, dim, norm)
    dims, lengths = lengths_of(name, input, s, dim)
    if not dims:
        raise ShapeError(f"{name}: at least one dimension must be transformed")
    return full.like(_resized(full.shape, dims[-1], lengths[-1] // 2 + 1))


def real_lengths(name: str, input: Meta, s: Size | None, dim: Size | None) -> tuple[Size, Lengths]:
    """Return the dimensions and the lengths of the real result that half of a Hermitian signal stands for."""
    dims, lengths = lengths_of(name, input, s, dim)
    if not dims:
        raise ShapeError(f"{name}: at least one dimension must be transformed")
    if s is None or s[-1] == -1:
        lengths = (*lengths[:-1], 2 * (input.shape[dims[-1]] - 1))
    return dims, lengths


def _to_real(name: str, input: Meta, s: Size | None, dim: Size | None, norm: str | None) -> Meta:
    normalization(name, norm, True)
    dims, lengths = real_lengths(name, input, s, dim)
    check_lengths(name, lengths)
    return _result(name, input, dims, lengths, _complex(name, input).to_real())


_KINDS = {"fft": _to_complex, "ifft": _to_complex, "rfft": _to_half, "ihfft": _to_half, "irfft": _to_real,
          "hfft": _to_real}  # fmt: skip
_DOCS = {
    "fft": "Compute the discrete Fourier transform",
    "ifft": "Compute the inverse discrete Fourier transform",
    "rfft": "Compute the discrete Fourier transform of real numbers, of which half is kept,",
    "irfft": "Compute the inverse of ``rfft``",
    "hfft": "Compute the discrete Fourier transform of half of a Hermitian signal, which is real,",
    "ihfft": "Compute the inverse of ``hfft``",
}


def _one_dimensional(name: str) -> Op:
    rule = _KINDS[name]
    public = f"fft.{name}"

    def transform(input: Meta, n: int | None = None, dim: int = -1, norm: str | None = None) -> Meta:
        if n is not None and n < 1:
            raise ShapeError(f"fft.{name}: there are no data points to transform: n is {n}")
        return rule(public, input, None if n is None else (n,), (dim,), norm)

    transform.__doc__ = f"{_DOCS[name]} along ``dim``; ``n`` is the length of the signal, padded with zeros or trimmed."
    return op(name=f"fft_{name}", method=False, module="fft")(transform)


def _two_dimensional(name: str) -> Op:
    rule = _KINDS[name]
    public = f"fft.{name}2"

    def transform(input: Meta, s: Size | None = None, dim: Size = (-2, -1), norm: str | None = None) -> Meta:
        return rule(public, input, s, dim, norm)

    transform.__doc__ = f"{_DOCS[name]} along two dimensions; ``s`` are the lengths of the signal along them."
    return op(name=f"fft_{name}2", method=False, module="fft")(transform)


def _many_dimensional(name: str) -> Op:
    rule = _KINDS[name]
    public = f"fft.{name}n"

    def transform(input: Meta, s: Size | None = None, dim: Size | None = None, norm: str | None = None) -> Meta:
        return rule(public, input, s, dim, norm)

    transform.__doc__ = f"{_DOCS[name]} along all or some dimensions; ``s`` are the lengths of the signal along them."
    return op(name=f"fft_{name}n", method=False, module="fft")(transform)


fft, ifft, rfft, irfft, hfft, ihfft = map(_one_dimensional, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fft2, ifft2, rfft2, irfft2, hfft2, ihfft2 = map(_two_dimensional, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn, hfftn, ihfftn = map(_many_dimensional, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))


def _frequencies(name: str, n: int, d: float, size: int, dtype: DType | None, device: Device | None) -> Meta:
    if n < 1 or d == 0:
        raise ArgumentError(f"{name}: expected a positive n and a spacing other than 0, got {n} and {d}")
    if dtype is not None and dtype.category != FLOAT:
        raise DTypeError(f"{name}: expected a floating-point type, not {dtype.name}")
    return new(name, (size,), dtype, device)


@op(name="fft_fftfreq", method=False, differentiable=False, module="fft")
def fftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make the frequencies of ``fft`` of ``n`` samples that are ``d`` apart."""
    return _frequencies("fft.fftfreq", n, d, n, dtype, device)


@op(name="fft_rfftfreq", method=False, differentiable=False, module="fft")
def rfftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None, device: Device | None = None) -> Meta:
    """Make the frequencies of ``rfft`` of ``n`` samples that are ``d`` apart."""
    return _frequencies("fft.rfftfreq", n, d, n // 2 + 1, dtype, device)


@op(name="fft_fftshift", method=False, module="fft", out=False)
def fftshift(input: Meta, dim: Size | None = None) -> Meta:
    """Roll the result of a transform so that frequency 0 is in the middle of the given dimensions, or of all."""
    wrap_dims("fft.fftshift", dim or (), input.ndim)
    return input.like()


@op(name="fft_ifftshift", method=False, module="fft", out=False)
def ifftshift(input: Meta, dim: Size | None = None) -> Meta:
    """Undo ``fftshift``."""
    wrap_dims("fft.ifftshift", dim or (), input.ndim)
    return input.like()
