"""Random numbers of the session's generator of the device; CPU and GPU give the same numbers for the same seed."""

from __future__ import annotations

import math

import numpy as np

from server.engine import context, random
from server.engine.array_library import poisson as poisson_numbers
from server.engine.registry import implements
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.meta import Device
from telegrad_protocol.ops import random as ops

from .derivatives import zero_gradient

_FLOAT64 = np.dtype(np.float64)
_FLOAT32 = np.dtype(np.float32)
_FEW_LIMITS = 64
"""Up to so many weights in a row, comparing rows with each limit in turn costs less than a search in every row."""
_ROWS_AT_ONCE = 2048


def _part_type(dtype):
    """The dtype of a complex number's parts; ``dtype`` itself if it is real."""
    return {"complex64": _FLOAT32, "complex128": _FLOAT64}.get(dtype.name, dtype)


def _parts(array):
    return (array.real, array.imag) if array.dtype.kind == "c" else (array,)


def _writable_vector(xp, part, dtype):
    """``part`` as a vector to draw into directly: on the host, if contiguous and of the drawn dtype; else None."""
    return part.reshape(-1) if xp is np and part.dtype == dtype and part.flags.c_contiguous else None


def _fill_in_parts(xp, fill, generator, target, *args):
    """Fill an array of complex32, whose parts no array shows, by way of complex64."""
    wide = xp.empty(target.shape, np.complex64)
    fill(xp, generator, wide, *args)
    xp.copyto(target, wide, casting="unsafe")


def _filled_from_ahead(xp, generator, target, make):
    """Whether ``target`` was filled with numbers that were drawn ahead: few ones of single precision on the host."""
    if xp is not np or target.dtype.char != "f":
        return False
    drawn = generator.take_small(target.size, 1, make)
    if drawn is None:
        return False
    target[...] = drawn.reshape(target.shape)
    return True


def _fill_uniform(xp, generator, target):
    if _filled_from_ahead(xp, generator, target, random.single_uniforms):
        return
    if target.dtype.name == "complex32":
        return _fill_in_parts(xp, _fill_uniform, generator, target)
    for part in _parts(target):
        dtype = _part_type(target.dtype)
        target_vector = _writable_vector(xp, part, dtype)
        drawn = random.uniform(xp, generator, part.size, dtype, target_vector)
        if target_vector is None:
            part[...] = drawn.reshape(part.shape)


def _fill_normal(xp, generator, target, mean=0.0, std=1.0):
    if mean == 0 and std == 1 and _filled_from_ahead(xp, generator, target, random.single_normals):
        return
    if target.dtype.name == "complex32":
        return _fill_in_parts(xp, _fill_normal, generator, target, mean, std)
    parts = _parts(target)
    for part in parts:
        dtype = _part_type(target.dtype)
        target_vector = _writable_vector(xp, part, dtype)
        drawn = random.normal(xp, generator, part.size, dtype, target_vector)
        scale, centre = float(std) / math.sqrt(len(parts)), float(mean) if part is parts[0] else 0.0
        if scale != 1:
            drawn *= scale
        if centre != 0:
            drawn += centre
        if target_vector is None:
            part[...] = drawn.reshape(part.shape)


def _fill_integers(xp, generator, target, low, high):
    drawn = random.random_integers(xp, generator, target.size, low, high).reshape(target.shape)
    xp.copyto(target, drawn, casting="unsafe")


@implements(ops.rand, movement=True)
def rand(xp, size, *, dtype, device, generator, out):
    _fill_uniform(xp, generator, out)


@implements(ops.randn, movement=True)
def randn(xp, size, *, dtype, device, generator, out):
    _fill_normal(xp, generator, out)


@implements(ops.randint, movement=True)
def randint(xp, high, size, *, dtype, device, generator, out):
    _fill_integers(xp, generator, out, 0, high)


@implements(ops.randint_low, movement=True)
def randint_low(xp, low, high, size, *, dtype, device, generator, out):
    _fill_integers(xp, generator, out, low, high)


@implements(ops.randperm, movement=True)
def randperm(xp, n, *, dtype, device, generator, out):
    xp.copyto(out, random.permutation(xp, generator, n), casting="unsafe")


@implements(ops.rand_like, movement=True)
def rand_like(xp, input, *, dtype, device, generator, out):
    _fill_uniform(xp, generator, out)


@implements(ops.randn_like, movement=True)
def randn_like(xp, input, *, dtype, device, generator, out):
    _fill_normal(xp, generator, out)


@implements(ops.randint_like, movement=True)
def randint_like(xp, input, high, *, dtype, device, generator, out):
    _fill_integers(xp, generator, out, 0, high)


@implements(ops.randint_like_low, movement=True)
def randint_like_low(xp, input, low, high, *, dtype, device, generator, out):
    _fill_integers(xp, generator, out, low, high)


@implements(ops.normal_size, movement=True)
def normal_size(xp, mean, std, size, *, dtype, device, generator, out):
    _fill_normal(xp, generator, out, mean, std)


def _draw_normal(xp, generator, mean, std, out):
    drawn = random.normal(xp, generator, out.size, out.dtype).reshape(out.shape)
    drawn *= std
    drawn += mean
    xp.copyto(out, drawn, casting="unsafe")


@implements(ops.normal_tensor, mean=zero_gradient, std=zero_gradient)
def normal_tensor(xp, mean, std, *, generator, out):
    if hasattr(std, "dtype") and xp is np and (std < 0).any():
        raise ArgumentError("normal: normal expects all elements of std >= 0.0")
    _draw_normal(xp, generator, mean, std, out)


@implements(ops.normal_std, std=zero_gradient)
def normal_std(xp, mean, std, *, generator, out):
    normal_tensor(xp, mean, std, generator=generator, out=out)


def _draw_bernoulli(xp, generator, p, target):
    drawn = random.bernoulli(xp, generator, p, target.size).reshape(target.shape)
    xp.copyto(target, drawn, casting="unsafe")


def _check_probabilities(xp, name, p):
    if xp is np and not ((p >= 0) & (p <= 1)).all():
        raise ArgumentError(f"{name}: probabilities must be in [0, 1]")


@implements(ops.bernoulli, input=zero_gradient)
def bernoulli(xp, input, *, generator, out):
    _check_probabilities(xp, "bernoulli", input)
    _draw_bernoulli(xp, generator, input, out)


@implements(ops.bernoulli_p, movement=True, input=zero_gradient)
def bernoulli_p(xp, input, p, *, generator, out):
    _draw_bernoulli(xp, generator, p, out)


@implements(ops.bernoulli_, movement=True, input=zero_gradient)
def bernoulli_(xp, input, p, *, generator):
    _draw_bernoulli(xp, generator, p, input)


@implements(ops.bernoulli_tensor_, movement=True, input=zero_gradient)
def bernoulli_tensor_(xp, input, p, *, generator):
    wide = xp.broadcast_to(p.astype(_FLOAT64), input.shape)
    _check_probabilities(xp, "bernoulli_", wide)
    _draw_bernoulli(xp, generator, wide, input)


@implements(ops.uniform_, movement=True, input=zero_gradient)
def uniform_(xp, input, a, b, *, generator):
    if input.dtype.name == "complex32":
        _fill_in_parts(xp, _fill_between, generator, input, a, b)
    else:
        _fill_between(xp, generator, input, a, b)


def _fill_between(xp, generator, input, a, b):
    for part in _parts(input):
        drawn = random.uniform(xp, generator, input.size, _part_type(input.dtype)).reshape(input.shape)
        drawn *= b - a
        drawn += a
        xp.copyto(part, drawn, casting="unsafe")


@implements(ops.normal_, movement=True, input=zero_gradient)
def normal_(xp, input, mean, std, *, generator):
    _fill_normal(xp, generator, input, mean, std)


@implements(ops.exponential_, movement=True, input=zero_gradient)
def exponential_(xp, input, lambd, *, generator):
    drawn = random.exponential(xp, generator, input.size, input.dtype, lambd).reshape(input.shape)
    xp.copyto(input, drawn, casting="unsafe")


@implements(ops.cauchy_, movement=True, input=zero_gradient)
def cauchy_(xp, input, median, sigma, *, generator):
    drawn = random.uniform(xp, generator, input.size, _FLOAT64).reshape(input.shape)
    xp.copyto(input, median + sigma * xp.tan(math.pi * (drawn - 0.5)), casting="unsafe")


@implements(ops.log_normal_, movement=True, input=zero_gradient)
def log_normal_(xp, input, mean, std, *, generator):
    drawn = random.normal(xp, generator, input.size, _FLOAT64).reshape(input.shape)
    xp.copyto(input, xp.exp(mean + std * drawn), casting="unsafe")


@implements(ops.geometric_, movement=True, input=zero_gradient)
def geometric_(xp, input, p, *, generator):
    drawn = random.exponential(xp, generator, input.size, _FLOAT64).reshape(input.shape)
    xp.copyto(input, xp.maximum(xp.ceil(drawn / -math.log1p(-p)), 1), casting="unsafe")


@implements(ops._exchange_generator_, movement=True)
def _exchange_generator_(xp, state, device):
    place = Device(device).on_server
    generator = context.current.generators.get(place)
    if generator is None:
        raise ArgumentError(f"_exchange_generator_: the session has no device {device!r}")
    own = generator.get_state()
    generator.set_state(state)
    state[...] = own


_EXACT_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53, "bool": 1, "uint8": 8}


@implements(ops.random_, movement=True, input=zero_gradient)
def random_(xp, input, *, generator):
    bits = _EXACT_BITS.get(input.dtype.name, 8 * input.itemsize - 1)
    # Floating-point dtypes represent every integer up to and including 2 ** bits.
    high = (1 << bits) + (input.dtype.name in ("float16", "bfloat16", "float32", "float64"))
    _fill_integers(xp, generator, input, 0, high)


@implements(ops.random_to_, movement=True, input=zero_gradient)
def random_to_(xp, input, to, *, generator):
    _fill_integers(xp, generator, input, 0, to)


@implements(ops.random_range_, movement=True, input=zero_gradient)
def random_range_(xp, input, low, to, *, generator):
    _fill_integers(xp, generator, input, low, to)


BAD_WEIGHTS = (
    "multinomial: invalid multinomial distribution: probability tensor contains either `inf`, `nan` or element < 0"
)
NO_WEIGHTS = "multinomial: invalid multinomial distribution (sum of probabilities <= 0)"


@implements(ops.multinomial)
def multinomial(xp, input, num_samples, replacement, *, generator, out):
    weights = input.astype(_FLOAT64)
    if xp is np:
        _check_weights(weights)
    draw = _with_replacement if replacement else _without_replacement
    out[...] = draw(xp, generator, weights, num_samples)


def _check_weights(weights):
    """Refuse weights that PyTorch refuses; a row may have fewer that are not 0 than numbers are drawn."""
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ArgumentError(BAD_WEIGHTS)
    if not (weights > 0).any(axis=-1).all():
        raise ArgumentError(NO_WEIGHTS)


def _with_replacement(xp, generator, weights, num_samples):
    """Indices of uniform numbers among the cumulative weights: inverse transform sampling."""
    limits = xp.cumsum(weights, axis=-1)
    rows = limits.reshape(-1, limits.shape[-1])
    uniform = random.uniform(xp, generator, len(rows) * num_samples, _FLOAT64).reshape(len(rows), num_samples)
    passed = _passed_in_blocks if rows.shape[-1] <= _FEW_LIMITS else _passed_by_rows
    return passed(xp, rows, uniform * rows[:, -1:]).reshape(*weights.shape[:-1], num_samples)


def _passed_by_rows(xp, rows, numbers):
    """How many of its row's limits, which increase, each number has passed."""
    passed = [xp.searchsorted(*row_and_own, side="right") for row_and_own in zip(rows, numbers, strict=True)]
    return xp.stack(passed) if passed else numbers.astype(np.int64)


def _passed_in_blocks(xp, rows, numbers):
    """What ``_passed_by_rows`` computes, limit by limit for many rows at once: a search costs more than some limits."""
    passed = xp.zeros(numbers.shape, np.int64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = slice(start, start + _ROWS_AT_ONCE)
        for limits in rows[block].T:
            passed[block] += limits[:, None] <= numbers[block]
    return passed


def _without_replacement(xp, generator, weights, num_samples):
    """The smallest of exponential variables whose rates are the weights (Efraimidis and Spirakis, 2006).

    Where too few weights are not 0, indices of weights that are 0 come last.
    """
    exponentials = random.exponential(xp, generator, weights.size, _FLOAT64).reshape(weights.shape)
    return xp.argsort(exponentials / weights, axis=-1)[..., :num_samples]


@implements(ops.poisson, input=zero_gradient)
def poisson(xp, input, *, generator, out):
    if xp is np and not (input >= 0).all():
        raise ArgumentError("poisson: rates must not be negative")
    xp.copyto(out, poisson_numbers.draw(xp, generator, input.astype(_FLOAT64)), casting="unsafe")
