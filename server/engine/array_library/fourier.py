"""Discrete Fourier transforms of arrays: by compiled loops, pocketfft or Intel MKL on the host, by cuFFT on a GPU.

Transforms are along several axes, scaled by a mode: 0 for no factor, 1 for one over the root of the number of points, 2
for one over that number. pocketfft writes into a given array if this release of SciPy lets it, and else into a new one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from server.engine.blas_threads import LARGE
from server.engine.device import threads

from . import host_fourier, mkl_fourier
from .host_libraries import mkl

_FORWARD = ("backward", "ortho", "forward")
_BACKWARD = ("forward", "ortho", "backward")
"""The names of the modes, whose meaning depends on the direction."""


def complex_to_complex(xp: Any, input: Any, axes: tuple[int, ...], mode: int, forward: bool, out: Any) -> None:
    """Write the transform of complex numbers."""
    if xp is np and mkl() is not None:
        mkl_fourier.transform(input, axes, mode, forward, out, input.nbytes >= LARGE)
        return
    if xp is np and host_fourier.transform(input, axes, mode, forward, out):
        return
    if xp is np and _pocketfft() is not None:
        _pocketfft().c2c(input, axes, forward, mode, out, _threads(input))
        return
    library = _library(xp)
    transform, names = (library.fftn, _FORWARD) if forward else (library.ifftn, _BACKWARD)
    out[...] = transform(input, axes=axes, norm=names[mode])


def real_to_complex(xp: Any, input: Any, axes: tuple[int, ...], mode: int, onesided: bool, out: Any) -> None:
    """Write the forward transform of real numbers, all of it or the first half along the last axis."""
    if not onesided:
        complex_to_complex(xp, input.astype(out.dtype), axes, mode, True, out)
    elif xp is np and mkl() is not None:
        mkl_fourier.transform(input, axes, mode, True, out, input.nbytes >= LARGE)
    elif xp is np and host_fourier.transform(input, axes, mode, True, out):
        pass
    elif xp is np and _pocketfft() is not None:
        _pocketfft().r2c(input, axes, True, mode, out, _threads(input))
    else:
        out[...] = _library(xp).rfftn(input, axes=axes, norm=_FORWARD[mode])


def complex_to_real(xp: Any, input: Any, axes: tuple[int, ...], mode: int, out: Any) -> None:
    """Write the backward transform of the first half, along the last axis, of a Hermitian signal."""
    if xp is np and host_fourier.transform(input, axes, mode, False, out):
        return
    if xp is np and mkl() is not None:
        mkl_fourier.transform(input, axes, mode, False, out, input.nbytes >= LARGE)
        return
    if xp is np and _pocketfft() is not None:
        _pocketfft().c2r(input, axes, out.shape[axes[-1]], False, mode, out, _threads(input))
        return
    lengths = [out.shape[axis] for axis in axes]
    out[...] = _library(xp).irfftn(input, lengths, axes=axes, norm=_BACKWARD[mode])


def fitted(xp: Any, input: Any, axes: tuple[int, ...], lengths: tuple[int, ...]) -> Any:
    """The input with these lengths along axes: zeros are behind shorter signals, and longer ones are trimmed."""
    shape, kept = list(input.shape), [slice(None)] * input.ndim
    for axis, length in zip(axes, lengths, strict=True):
        shape[axis], kept[axis] = length, slice(min(length, input.shape[axis]))
    trimmed = input[tuple(kept)]
    if trimmed.shape == tuple(shape):
        return trimmed
    result = xp.zeros(shape, input.dtype)
    result[tuple(kept)] = trimmed
    return result


_SHORT_TYPES = frozenset(map(np.dtype, ("f4", "f8", "c8", "c16")))
"""The types whose transforms of few numbers pocketfft makes as they are."""


def short_transform(
    given: Any, result: Any, numbers: int, axes: tuple[int, ...], mode: int, forward: bool, is_half: bool, length: int
) -> Callable[[Any, Any], None] | None:  # fmt: skip
    """pocketfft's transform of few numbers on the host as a function of both arrays, given their types.

    ``numbers`` is how many the result has, ``length`` that of its last transformed axis, and ``is_half`` whether it is
    the first half of the transform of real numbers. None where another library or
    loop transforms these, several functions do, or they are of a type that pocketfft does not have.
    """
    if mkl() is not None or _pocketfft() is None or numbers >= host_fourier.LEAST or not numbers:
        return None
    if not _SHORT_TYPES.issuperset((given, result)):
        return None
    if result.kind != "c":
        c2r = _pocketfft().c2r
        return None if len(axes) > 1 else lambda input, out: c2r(input, axes, length, False, mode, out, 1)
    c2c, r2c = _pocketfft().c2c, _pocketfft().r2c
    if not is_half:
        return lambda input, out: c2c(input, axes, forward, mode, out, 1)
    return lambda input, out: r2c(input, axes, True, mode, out, 1)


def _threads(input: Any) -> int:
    return threads.count() if input.nbytes >= LARGE else 1


@functools.cache
def _pocketfft() -> Any:
    """SciPy's binding of pocketfft, which takes the result's array; None where SciPy has none of that form."""
    try:
        from scipy.fft._pocketfft import pypocketfft
    except ImportError:
        return None
    return pypocketfft


def _library(xp: Any) -> Any:
    if xp is np:
        import scipy.fft

        return scipy.fft
    return xp.fft
