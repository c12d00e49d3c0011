"""Random numbers: a counter-based Philox 4x32-10 generator and the distributions that are made from its words.

Every function takes the array module ``xp``, so CPU and GPU draw the same numbers: words come from integer arithmetic,
and what needs a logarithm or an angle is computed in float64 and rounded once. (The GPU's own kernel makes normal
numbers below float64 in float32: those differ in the last bits.) A generator is a seed and an offset, counted in blocks
of four 32-bit words; a request takes whole blocks, so splitting one at a multiple of four words (four values, or two of
those made from 64 bits) changes nothing. Knows nothing of values, ops, sessions or the wire.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import numpy as np

from server import native
from telegrad_protocol.errors import ArgumentError, CaptureError

from . import compiled
from .array_library.random_words import gaussian
from .array_library.random_words.philox import WORDS_PER_BLOCK, CompiledPhilox, NativePhilox, Philox

DEFAULT_SEED: Final = 67280421310721
STATE_BYTES: Final = 16

# Blocks that are computed at once: on a CPU the scratch memory stays in a core's cache, on a GPU launches are few.
_CPU_CHUNK: Final = 8192
_GPU_CHUNK: Final = 1 << 20
_AHEAD: Final = 1024
"""Blocks that a CPU computes at once for small requests, and keeps for the next ones."""
_FIRST_AHEAD: Final = 64
"""So many are computed for a seed that is new: many programs set another one soon."""
_MOST_SMALL: Final = 64
"""Requests of more blocks are computed by themselves."""
_MOST_AHEAD: Final = 4
"""What was computed ahead is kept for so many seeds: programs have several generators and draw from them in turn."""

_SINGLE_BITS: Final = 24
_MANTISSA_BITS: Final = {"float16": 11, "bfloat16": 8, "float32": _SINGLE_BITS}
# Above it, the remainder of a 32-bit word would favour small numbers by more than 1 in 256.
_NARROW_SPAN: Final = 1 << 24
# Above it, too few key bits would be left beside the index for keys to be distinct.
_PACKED_PERMUTATION: Final = 1 << 24


class Named(Protocol):
    """A type of elements: NumPy's or the protocol's, which share their names."""

    @property
    def name(self) -> str: ...


class Generator:
    """A stream of random words: its seed, and its offset, the number of blocks of four words that were taken."""

    __slots__ = ("_ahead", "_offset", "_seed")
    _offset: int
    _seed: int

    def __init__(self, seed: int = DEFAULT_SEED) -> None:
        self._ahead: dict[int, _Ahead] = {}
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of ``seed``; a negative one counts down from 2**64, as in PyTorch."""
        if not -(1 << 63) <= seed < 1 << 64:
            raise ArgumentError(f"manual_seed: the seed must be in [-2**63, 2**64), got {seed}")
        self.restore(seed % (1 << 64), 0)
        return self

    def seed(self) -> int:
        """Start the stream of an unpredictable seed, and return that seed."""
        self.manual_seed(secrets.randbits(64))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    @property
    def offset(self) -> int:
        """The block that the next request starts at."""
        return self._offset

    def get_state(self) -> Any:
        """Seed and offset as 16 bytes (little-endian u64 each) in a uint8 array."""
        return np.array([self._seed, self._offset], dtype="<u8").view(np.uint8)

    def set_state(self, state: Any) -> None:
        """Continue where ``get_state`` was called; takes its array or the same bytes."""
        raw = bytes(state)
        if len(raw) != STATE_BYTES:
            raise ArgumentError(f"set_rng_state: a state has {STATE_BYTES} bytes, got {len(raw)}")
        seed, offset = np.frombuffer(raw, dtype="<u8").tolist()
        self.restore(seed, offset)

    def reserve(self, words: int) -> int:
        """Take ``words`` 32-bit words, rounded up to whole blocks, and return the first block."""
        first = self._offset
        self._offset = (first + -(-words // WORDS_PER_BLOCK)) % (1 << 64)
        return first

    def draw(self, words: int) -> tuple[int, int, int]:
        """Take words for a kernel: return what it is told as seed, first block, and address of a state, here none."""
        return self._seed, self.reserve(words), 0

    def restore(self, seed: int, offset: int) -> None:
        """Continue at a block of the stream of a seed."""
        self._seed, self._offset = seed, offset

    def take_small(self, n: int, words_each: int, make: Callable[[Any], Any]) -> Any:
        """Take ``n`` numbers that ``make`` makes of words, ``words_each`` of each, or words; None where they are many.

        What is made of the words that were computed ahead is kept beside them, so ``make`` must not depend on where a
        number is among others. The numbers are not to be changed.
        """
        blocks = -(-n * words_each // WORDS_PER_BLOCK)
        if blocks > _MOST_SMALL:
            return None
        first = self.reserve(n * words_each)
        ahead = self._ahead.get(self._seed)
        if ahead is None or not 0 <= first - ahead.first <= ahead.blocks - blocks:
            ahead = self._look_ahead(first)
        begin = (first - ahead.first) * WORDS_PER_BLOCK // words_each
        return ahead.made(make)[begin : begin + n]

    def _look_ahead(self, first: int) -> _Ahead:
        """Compute many blocks at once: a hundred NumPy calls cost the same for them as for a few."""
        count = _AHEAD if self._ahead.pop(self._seed, None) else _FIRST_AHEAD
        while len(self._ahead) >= _MOST_AHEAD:
            del self._ahead[next(iter(self._ahead))]
        ahead = self._ahead[self._seed] = _Ahead(first, _stream(np, self, count, count).words(first, count))
        return ahead


class _Ahead:
    """Words of one seed from a block on, and what was made of all of them."""

    __slots__ = ("_made", "_words", "blocks", "first")

    def __init__(self, first: int, words: Any) -> None:
        self.first, self.blocks = first, len(words) // WORDS_PER_BLOCK
        self._words = words
        self._made: dict[Callable[[Any], Any], Any] = {}

    def made(self, make: Callable[[Any], Any]) -> Any:
        """Return what a function makes of the words, which it leaves as they are."""
        made = self._made.get(make)
        if made is None:
            made = self._made[make] = make(self._words)
        return made


def _as_they_are(words: Any) -> Any:
    return words


class PlacedGenerator(Generator):
    """Stands for a generator while a device captures a graph, which draws anew each time that it is launched.

    Kernels read seed and offset at an address, and count their blocks from there. ``words`` counts what they draw.
    What asks for a number of its own cannot be captured.
    """

    __slots__ = ("_pointer", "words")

    def __init__(self, pointer: int) -> None:
        super().__init__(0)
        self._pointer = pointer
        self.words = 0

    def reserve(self, words: int) -> int:
        """Raise CaptureError: the next launch would use the same words."""
        raise CaptureError("a generator's words would be the same in each replay")

    def get_state(self) -> Any:
        """Raise CaptureError: the state is another one in each replay."""
        raise CaptureError("a generator's state would be the same in each replay")

    def set_state(self, state: Any) -> None:
        """Raise CaptureError: the state is another one in each replay."""
        raise CaptureError("a generator's state would be the same in each replay")

    def draw(self, words: int) -> tuple[int, int, int]:
        """Take words for a kernel, counted from the state at the address."""
        first = self.words // WORDS_PER_BLOCK
        self.words += -(-words // WORDS_PER_BLOCK) * WORDS_PER_BLOCK
        return 0, first, self._pointer


def _stream(xp: Any, gen: Generator, total: int, chunk: int) -> Philox | CompiledPhilox | NativePhilox:
    """What makes the words of so many blocks, in chunks."""
    if xp is not np:
        loops = None
    elif total * WORDS_PER_BLOCK >= compiled.LEAST:
        loops = compiled.kernels("philox")
    else:
        loops = compiled.loaded("philox")
    seed, in_c = gen.initial_seed(), native.load() if xp is np and loops is None else None
    if in_c is not None:
        return NativePhilox(in_c.philox, seed, chunk)
    return Philox(xp, seed, chunk) if loops is None else CompiledPhilox(loops, seed, chunk)


def _chunks(xp: Any, gen: Generator, n: int, words_each: int) -> Iterator[tuple[slice, Any]]:
    """Yield where values go, with the words that they are made from (up to a whole block, so perhaps some more)."""
    total = -(-n * words_each // WORDS_PER_BLOCK)
    if xp is np and (words := gen.take_small(total * WORDS_PER_BLOCK, 1, _as_they_are)) is not None:
        yield slice(0, n), words.copy()
        return
    first = gen.reserve(n * words_each)
    chunk = min(_CPU_CHUNK if xp is np else _GPU_CHUNK, total)
    source = _stream(xp, gen, total, chunk)
    values = chunk * WORDS_PER_BLOCK // words_each
    for start in range(0, n, values or 1):
        done = start * words_each // WORDS_PER_BLOCK
        blocks = min(chunk, total - done)
        yield slice(start, min(start + values, n)), source.words(first + done, blocks)


def random_words(xp: Any, gen: Generator, n: int) -> Any:
    """``n`` uint32 words."""
    out = xp.empty(n, np.uint32)
    for at, words in _chunks(xp, gen, n, 1):
        out[at] = words[: at.stop - at.start]
    return out


def random_words64(xp: Any, gen: Generator, n: int) -> Any:
    """``n`` uint64 words."""
    out = xp.empty(n, np.uint64)
    for at, words in _chunks(xp, gen, n, 2):
        out[at] = words.view(np.uint64)[: at.stop - at.start]
    return out


def uniform(xp: Any, gen: Generator, n: int, dtype: Named, out: Any = None) -> Any:
    """``n`` numbers in [0, 1) with all the bits of ``dtype``; in ``out`` if that is given.

    Half types come as float32 with values that the type holds exactly, so casting never rounds up to 1.
    """
    if dtype.name == "float64":
        return _uniform64(xp, gen, n, out)
    bits = _MANTISSA_BITS[dtype.name]
    out = xp.empty(n, np.float32) if out is None else out
    if xp is np and bits == _SINGLE_BITS and (drawn := gen.take_small(n, 1, single_uniforms)) is not None:
        out[:] = drawn
        return out
    for at, words in _chunks(xp, gen, n, 1):
        part = out[at]
        _fill_uniforms(xp, words[: part.size], bits, part)
    return out


def _fill_uniforms(xp: Any, words: Any, bits: int, out: Any) -> None:
    """Write a number for each word, which is overwritten."""
    xp.right_shift(words, np.uint32(32 - bits), out=words)
    # The conversion from signed integers is the vectorised one, and the sign bit is clear.
    out[...] = words.view(np.int32)
    out *= np.float32(2.0**-bits)


def single_uniforms(words: Any) -> Any:
    """Return a number in [0, 1) of single precision for each word."""
    out = np.empty(words.size, np.float32)
    _fill_uniforms(np, words.copy(), _SINGLE_BITS, out)
    return out


def single_normals(words: Any) -> Any:
    """Return a standard normal number of single precision for each word."""
    out = np.empty(words.size, np.float32)
    gaussian.fill(words, out)
    return out


def _uniform64(xp: Any, gen: Generator, n: int, out: Any) -> Any:
    out = xp.empty(n, np.float64) if out is None else out
    for at, words in _chunks(xp, gen, n, 2):
        part = out[at]
        part[...] = (words.view(np.uint64)[: part.size] >> np.uint64(11)).view(np.int64)
        part *= 2.0**-53
    return out


def normal(xp: Any, gen: Generator, n: int, dtype: Named, out: Any = None) -> Any:
    """``n`` numbers of the standard normal distribution (Box-Muller), in ``out`` if that is given.

    Half types come as float32.
    """
    wide = dtype.name == "float64"
    out = xp.empty(n, np.float64 if wide else np.float32) if out is None else out
    if xp is np and not wide and (drawn := gen.take_small(n, 1, single_normals)) is not None:
        out[:] = drawn
        return out
    for at, words in _chunks(xp, gen, n, 2 if wide else 1):
        if xp is np and not wide:
            gaussian.fill(words, out[at])
        else:
            out[at] = _box_muller(xp, words.view(np.uint64) if wide else words, out.dtype)[: at.stop - at.start]
    return out


def _box_muller(xp: Any, words: Any, dtype: Any) -> Any:
    pairs = words.reshape(-1, 2)
    radius = xp.sqrt(-2.0 * xp.log(_open_unit(xp, pairs[:, 0])))
    angle = pairs[:, 1].astype(np.float64) * (2.0 * math.pi * 2.0 ** (-8 * words.itemsize))
    both = xp.empty(pairs.shape, dtype)
    both[:, 0] = radius * xp.cos(angle)
    both[:, 1] = radius * xp.sin(angle)
    return both.reshape(-1)


def exponential(xp: Any, gen: Generator, n: int, dtype: Named, rate: float = 1.0) -> Any:
    """``n`` numbers of the exponential distribution of ``rate``, never 0; half types come as float32."""
    wide = dtype.name == "float64"
    out = xp.empty(n, np.float64 if wide else np.float32)
    for at, words in _chunks(xp, gen, n, 2 if wide else 1):
        unit = _open_unit(xp, words.view(np.uint64) if wide else words)
        out[at] = (xp.log(unit) * (-1.0 / rate))[: at.stop - at.start]
    return out


def _open_unit(xp: Any, words: Any) -> Any:
    """Words as float64 in (0, 1), neither end included, so that logarithms are finite and not 0."""
    if words.dtype == np.uint64:
        return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return (words.astype(np.float64) + 0.5) * 2.0**-32


def random_integers(xp: Any, gen: Generator, n: int, low: int, high: int) -> Any:
    """``n`` int64 numbers in [low, high)."""
    span = high - low
    if span <= 0 or low < -(1 << 63) or high > 1 << 63:
        raise ArgumentError(f"randint: low must be less than high, and both fit into int64, got [{low}, {high})")
    out = xp.empty(n, np.int64)
    unsigned = out.view(np.uint64)
    narrow = span <= _NARROW_SPAN
    for at, words in _chunks(xp, gen, n, 1 if narrow else 2):
        drawn = words if narrow else words.view(np.uint64)
        unsigned[at] = _remainder(drawn[: at.stop - at.start], span)
    # Unsigned arithmetic wraps, which is what spans beyond int64 need.
    unsigned += np.uint64(low % (1 << 64))
    return out


def _remainder(words: Any, span: int) -> Any:
    """words % span; NumPy's quotient by one number is vectorised, its remainder is not"""
    if span == 1 << 64:
        return words
    divisor = words.dtype.type(span)
    quotient = words // divisor
    quotient *= divisor
    return words - quotient


def bernoulli(xp: Any, gen: Generator, p: Any, n: int) -> Any:
    """``n`` booleans, true with probability ``p``: a number, or ``n`` of them in an array.

    An array's entries are not checked (that would wait for the device): below 0 is 0, above 1 is 1.
    """
    limits: Any = np.float64(p) if isinstance(p, (int, float)) else p.reshape(-1).astype(np.float64)
    limits = limits * 2.0**32
    out = xp.empty(n, np.bool_)
    for at, words in _chunks(xp, gen, n, 1):
        xp.less(words[: at.stop - at.start], limits[at] if limits.ndim else limits, out=out[at])
    return out


def permutation(xp: Any, gen: Generator, n: int) -> Any:
    """The numbers 0 to n - 1 (int64) in random order: sorted by random keys, equal keys by number."""
    keys = random_words64(xp, gen, n)
    if n > _PACKED_PERMUTATION:
        return xp.argsort(keys, kind="stable").astype(np.int64, copy=False)
    # The number replaces the lowest bits of its key: sorting values is several times faster than argsort.
    numbers = np.uint64((1 << (n - 1).bit_length()) - 1 if n else 0)
    keys &= ~numbers
    keys |= xp.arange(n, dtype=np.uint64)
    keys.sort()
    keys &= numbers
    return keys.view(np.int64)
