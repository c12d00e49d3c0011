"""Fourier transforms, whose dimensions move by one behind that of the batch."""

from __future__ import annotations

from typing import Any

from ..case import Case, dim_of, enter, rule


def _transform(case: Case) -> Any:
    x, args = case.args[0], list(case.args)
    place = [param.name for param in case.op.params].index("dim")
    dims = args[place]
    if dims is None:
        sizes = args[1]
        dims = tuple(range(-len(sizes), 0)) if sizes is not None else tuple(range(x.ndim))
    args[place] = tuple([dim_of(d, x.ndim) for d in dims]) if isinstance(dims, tuple) else dim_of(dims, x.ndim)
    return case.call(x.front, *args[1:])


_KINDS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
enter(_transform, [f"fft_{kind}{dims}" for kind in _KINDS for dims in ("", "2", "n")])
enter(_transform, ("_fft_c2c", "_fft_r2c", "_fft_c2r"))


@rule("stft")
def _stft(case: Case) -> Any:
    x, *rest = case.args
    window = case.named("window")
    if window is not None and window.is_batched:
        return NotImplemented
    rest = [value.tensor if value is window and value is not None else value for value in rest]
    if x.ndim == 1:
        return case.call(x.front, *rest)
    return case.call(x.front.flatten(0, 1), *rest).unflatten(0, (case.size, -1))
