"""Philox against its published vectors, and the distributions against theirs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from scipy import stats

from server import native
from server.engine import random
from server.engine.array_library.random_words.philox import NativePhilox, Philox, philox4x32
from server.engine.random import Generator
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ArgumentError
from tests.support.compilers import needs_calls_in_c

SEED = 1234
F16, BF16, F32, F64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64
Draw = Callable[[Generator, int], Any]

# each with how many of its values come out of one block
DRAWS: dict[str, tuple[Draw, int]] = {
    "words": (lambda gen, n: random.random_words(np, gen, n), 4),
    "words64": (lambda gen, n: random.random_words64(np, gen, n), 2),
    "uniform half": (lambda gen, n: random.uniform(np, gen, n, F16), 4),
    "uniform": (lambda gen, n: random.uniform(np, gen, n, F32), 4),
    "uniform double": (lambda gen, n: random.uniform(np, gen, n, F64), 2),
    "normal": (lambda gen, n: random.normal(np, gen, n, F32), 4),
    "normal double": (lambda gen, n: random.normal(np, gen, n, F64), 2),
    "exponential": (lambda gen, n: random.exponential(np, gen, n, F32), 4),
    "exponential double": (lambda gen, n: random.exponential(np, gen, n, F64), 2),
    "integers": (lambda gen, n: random.random_integers(np, gen, n, -5, 100), 4),
    "wide integers": (lambda gen, n: random.random_integers(np, gen, n, 0, 1 << 40), 2),
    "bernoulli": (lambda gen, n: random.bernoulli(np, gen, 0.3, n), 4),
}
draws = pytest.mark.parametrize(("draw", "per_block"), DRAWS.values(), ids=DRAWS)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_the_published_vectors(counter: list[int], key: list[int], expected: list[int]) -> None:
    lanes = np.array([counter, counter], dtype=np.uint64).T.copy()
    philox4x32(np, lanes, key[0] | key[1] << 32)
    assert lanes.T.tolist() == [expected, expected]


def test_words_are_the_blocks_in_order() -> None:
    gen = Generator(0)
    words = random.random_words(np, gen, 8)
    lanes = np.zeros((4, 2), dtype=np.uint64)
    lanes[0, 1] = 1
    philox4x32(np, lanes, 0)
    assert words.tolist() == lanes.T.reshape(-1).tolist()
    assert gen.offset == 2


@pytest.mark.parametrize("first", [0, 7, (1 << 32) - 40, 1 << 32, (1 << 40) - 3, (1 << 64) - 50])
def test_words_follow_from_their_counters_wherever_the_stream_stands(first: int) -> None:
    gen = Generator(SEED)
    gen.restore(SEED, first)
    found = random.random_words(np, gen, 4 * 3000)
    index = np.arange(3000, dtype=np.uint64) + np.uint64(first)
    lanes = np.stack([index & np.uint64(0xFFFFFFFF), index >> np.uint64(32), index * 0, index * 0])
    philox4x32(np, lanes, SEED)
    assert np.array_equal(found, lanes.T.reshape(-1))


def test_normal_numbers_are_those_of_the_words_to_a_last_bit() -> None:
    words = random.random_words(np, Generator(SEED), 200_000).astype(np.float64).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log((words[:, 0] + 0.5) * 2.0**-32))
    angle = words[:, 1] * (2 * np.pi * 2.0**-32)
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
    np.testing.assert_allclose(random.normal(np, Generator(SEED), 199_999, F32), expected[:-1], rtol=6e-8)


@draws
def test_same_seed_gives_same_numbers_and_another_seed_others(draw: Draw, per_block: int) -> None:
    first, again, other = draw(Generator(1), 1000), draw(Generator(1), 1000), draw(Generator(2), 1000)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@draws
@pytest.mark.parametrize("sizes", [(1, 1), (1, 3, 200), (16_384, 100_001), (999, 65_536, 1, 70_000)], ids=str)
def test_splitting_at_whole_blocks_changes_nothing(draw: Draw, per_block: int, sizes: tuple[int, ...]) -> None:
    sizes = tuple(size * per_block for size in sizes)
    gen, whole = Generator(SEED), Generator(SEED)
    parts = np.concatenate([draw(gen, size) for size in sizes])
    assert np.array_equal(parts, draw(whole, sum(sizes)))
    assert gen.offset == whole.offset


@draws
def test_a_request_is_the_beginning_of_a_longer_one(draw: Draw, per_block: int) -> None:
    longest = draw(Generator(SEED), 70_001)
    for n in (0, 1, 2, 3, 5, 63, 257, 258, 4097, 32_768, 32_769, 65_537):
        assert np.array_equal(draw(Generator(SEED), n), longest[:n])


@draws
def test_consecutive_requests_share_no_block(draw: Draw, per_block: int) -> None:
    gen = Generator(SEED)
    for n in (1, 3, 5, 300):
        before = gen.offset
        draw(gen, n)
        assert gen.offset == before + -(-n // per_block)


def test_state_continues_the_stream() -> None:
    gen = Generator(SEED)
    random.uniform(np, gen, 37, F32)
    state = gen.get_state()
    assert state.dtype == np.uint8 and state.shape == (16,)
    expected = random.normal(np, gen, 1000, F32)
    other = Generator()
    other.set_state(state)
    assert other.initial_seed() == SEED
    assert np.array_equal(random.normal(np, other, 1000, F32), expected)
    gen.set_state(state.tobytes())
    assert np.array_equal(random.normal(np, gen, 3, F32), expected[:3])


def test_a_rewound_generator_repeats_small_requests() -> None:
    gen = Generator(SEED)
    state, expected = gen.get_state(), random.random_words(np, gen, 5)
    random.random_words(np, gen, 9)
    gen.set_state(state)
    assert np.array_equal(random.random_words(np, gen, 5), expected)
    gen.manual_seed(SEED + 1)
    assert not np.array_equal(random.random_words(np, gen, 5), expected)
    gen.manual_seed(SEED)
    assert np.array_equal(random.random_words(np, gen, 5), expected)


def test_the_offset_wraps_around() -> None:
    gen = Generator(SEED)
    last = np.array([SEED, 2**64 - 1], dtype="<u8").tobytes()
    gen.set_state(last)
    whole = random.random_words(np, gen, 20_000)
    assert gen.offset == 4999
    assert np.array_equal(whole[4:8], random.random_words(np, Generator(SEED), 4))
    gen.set_state(last)
    assert np.array_equal(random.random_words(np, gen, 8), whole[:8])


@pytest.mark.parametrize("state", [b"", b"x" * 15, b"x" * 17], ids=len)
def test_a_state_of_wrong_size_is_refused(state: bytes) -> None:
    gen = Generator(SEED)
    with pytest.raises(ArgumentError, match=f"a state has 16 bytes, got {len(state)}"):
        gen.set_state(state)
    assert gen.initial_seed() == SEED


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 - 1, -(2**63), random.DEFAULT_SEED])
def test_seeds_are_numbered_as_in_pytorch(seed: int) -> None:
    assert Generator(seed).initial_seed() == torch.Generator().manual_seed(seed).initial_seed()
    assert Generator().initial_seed() == torch.Generator().initial_seed()


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(ArgumentError, match="the seed must be in"):
        Generator(seed)


def test_nondeterministic_seeds_differ_and_are_reported() -> None:
    gen = Generator()
    assert gen.seed() != gen.seed()
    seed = gen.seed()
    assert gen.initial_seed() == seed
    assert np.array_equal(random.random_words(np, gen, 4), random.random_words(np, Generator(seed), 4))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=lambda dtype: dtype.name)
def test_uniform_fills_the_half_open_unit_interval(dtype: dtypes.DType) -> None:
    values = random.uniform(np, Generator(SEED), 200_000, dtype)
    target = np.dtype(ml_dtypes.bfloat16 if dtype is BF16 else dtype.name)
    assert values.dtype == (np.float64 if dtype is F64 else np.float32)
    assert np.array_equal(values.astype(target).astype(values.dtype), values)
    assert values.min() >= 0 and values.max() < 1
    if dtype in (F32, F64):
        assert stats.kstest(values, "uniform").pvalue > 0.01
    else:
        assert values.min() == 0
        levels = 1 << random._MANTISSA_BITS[dtype.name]
        assert stats.chisquare(np.bincount((values * levels).astype(int), minlength=levels)).pvalue > 0.01


@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda dtype: dtype.name)
def test_uniform_uses_every_bit_of_its_mantissa(dtype: dtypes.DType) -> None:
    bits = 53 if dtype is F64 else 24
    numerators = (random.uniform(np, Generator(SEED), 1000, dtype).astype(np.float64) * 2.0**bits).astype(np.uint64)
    assert int(np.bitwise_or.reduce(numerators)) == (1 << bits) - 1
    assert int(np.bitwise_and.reduce(numerators)) == 0


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
def test_normal_and_exponential_have_their_distributions(dtype: dtypes.DType) -> None:
    normal = random.normal(np, Generator(SEED), 200_001, dtype)
    exponential = random.exponential(np, Generator(SEED), 200_001, dtype)
    assert normal.dtype == exponential.dtype == (np.float64 if dtype is F64 else np.float32)
    assert stats.kstest(normal, "norm").pvalue > 0.01
    assert stats.kstest(normal[::2], "norm").pvalue > 0.01
    assert abs(np.corrcoef(normal[:-1:2], normal[1::2])[0, 1]) < 0.01
    assert stats.kstest(exponential, "expon").pvalue > 0.01
    assert exponential.min() > 0
    assert np.isfinite(normal).all() and np.isfinite(exponential).all()


def test_exponential_scales_with_its_rate() -> None:
    values = random.exponential(np, Generator(SEED), 100_000, F64, rate=4.0)
    assert stats.kstest(values, "expon", args=(0, 0.25)).pvalue > 0.01


def test_extreme_words_give_finite_numbers() -> None:
    for dtype in (np.uint32, np.uint64):
        unit = random._open_unit(np, np.array([0, np.iinfo(dtype).max], dtype=dtype))
        assert 0 < unit[0] < unit[1] < 1


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (0, 2), (-3, 4), (0, 100), (-(2**62), -(2**62) + 7), (0, 2**24), (-5, 2**24), (0, 3 << 30),
     (-(2**40), 2**40), (-(2**63), 2**63), (2**63 - 2, 2**63)],
)  # fmt: skip
def test_integers_are_uniform_in_their_range(low: int, high: int) -> None:
    values = random.random_integers(np, Generator(SEED), 50_000, low, high)
    assert values.dtype == np.int64
    assert low <= values.min() and values.max() < high
    if high - low <= 100:
        counts = np.bincount(values - low, minlength=high - low)
        assert counts.size == 1 or stats.chisquare(counts).pvalue > 0.01
    else:
        unit = np.array([(int(value) - low) / (high - low) for value in values])
        assert stats.kstest(unit, "uniform").pvalue > 0.01


@pytest.mark.parametrize(("low", "high"), [(0, 0), (3, 2), (0, 2**63 + 1), (-(2**63) - 1, 0)])
def test_impossible_ranges_are_refused_and_draw_nothing(low: int, high: int) -> None:
    gen = Generator(SEED)
    with pytest.raises(ArgumentError, match="low must be less than high"):
        random.random_integers(np, gen, 3, low, high)
    assert gen.offset == 0


def test_bernoulli_has_its_probability_and_its_ends_are_certain() -> None:
    for p in (0.0, 0.1, 0.5, 0.999, 1.0):
        values = random.bernoulli(np, Generator(SEED), p, 100_000)
        assert values.dtype == np.bool_
        assert stats.binomtest(int(values.sum()), values.size, p).pvalue > 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16], ids=lambda dtype: dtype.__name__)
def test_bernoulli_takes_one_probability_per_value(dtype: Any) -> None:
    p = np.repeat(np.array([0, 0.25, 1, 0.75], dtype=dtype), 20_000)
    values = random.bernoulli(np, Generator(SEED), p, p.size).reshape(4, -1)
    for row, expected in zip(values, (0.0, 0.25, 1.0, 0.75), strict=True):
        assert stats.binomtest(int(row.sum()), row.size, expected).pvalue > 0.01
    constant = np.full(1000, 0.25, dtype=dtype)
    assert np.array_equal(
        random.bernoulli(np, Generator(SEED), constant, 1000), random.bernoulli(np, Generator(SEED), 0.25, 1000)
    )


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1000, 100_000])
def test_permutation_holds_every_number_once(n: int) -> None:
    values = random.permutation(np, Generator(SEED), n)
    assert values.dtype == np.int64
    assert np.array_equal(np.sort(values), np.arange(n))


def test_permutations_without_room_for_packing_hold_every_number_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "_PACKED_PERMUTATION", 10)
    values = random.permutation(np, Generator(SEED), 1000)
    assert values.dtype == np.int64
    assert np.array_equal(np.sort(values), np.arange(1000))


def test_every_permutation_is_equally_likely() -> None:
    gen = Generator(SEED)
    counts = np.zeros(24, dtype=int)
    for _ in range(6000):
        a, b, c, _ = random.permutation(np, gen, 4)
        counts[a * 6 + (b - (b > a)) * 2 + (c - (c > a) - (c > b))] += 1
    assert stats.chisquare(counts).pvalue > 0.01


@pytest.mark.gpu
def test_cupy_draws_the_same_numbers() -> None:
    cupy = pytest.importorskip("cupy")
    n = 100_003
    for dtype in (F16, BF16, F32, F64):
        for draw in (random.uniform, random.normal, random.exponential):
            ours, theirs = draw(np, Generator(SEED), n, dtype), draw(cupy, Generator(SEED), n, dtype).get()
            assert ours.dtype == theirs.dtype
            if draw is random.uniform:
                assert np.array_equal(ours, theirs)
            np.testing.assert_allclose(theirs, ours, rtol=1e-13 if dtype is F64 else 2e-7, atol=1e-14)
    p = np.linspace(0, 1, n)
    for low, high in ((0, 7), (-3, 2**40), (-(2**63), 2**63)):
        ours = random.random_integers(np, Generator(SEED), n, low, high)
        assert np.array_equal(random.random_integers(cupy, Generator(SEED), n, low, high).get(), ours)
    for given, there in ((0.3, 0.3), (p, cupy.asarray(p))):
        ours = random.bernoulli(np, Generator(SEED), given, n)
        assert np.array_equal(random.bernoulli(cupy, Generator(SEED), there, n).get(), ours)
    ours = random.permutation(np, Generator(SEED), n)
    assert np.array_equal(random.permutation(cupy, Generator(SEED), n).get(), ours)


@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_numbers_that_were_made_ahead_are_those_that_are_made_alone(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    seeds, draw = [rng.getrandbits(64) for _ in range(6)], getattr(random, name)
    requests = [
        (rng.choice((0, 1, 2, 3, 5, 64, 255, 256, 257)), rng.random() < 0.1, rng.choice(seeds), rng.choice((0, 3, 90)))
        for _ in range(400)
    ]

    def drawn() -> list[bytes]:
        generator, made = Generator(seeds[0]), []
        for count, is_set, number, offset in requests:
            if is_set:
                generator.restore(number, offset)
            made.append(draw(np, generator, count, np.dtype(np.float32)).tobytes())
            if count == 5:  # what overwrites the words that it takes must leave those that are kept
                made.append(draw(np, generator, count, np.dtype(np.float16)).tobytes())
        return [*made, str(generator.offset).encode()]

    ahead = drawn()
    monkeypatch.setattr(random, "_MOST_SMALL", -1)
    assert drawn() == ahead


def test_words_are_computed_for_many_small_draws_of_several_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    computed, stream = [], random._stream
    monkeypatch.setattr(random, "_stream", lambda *args: computed.append(1) or stream(*args))
    generator, offsets = Generator(SEED), {SEED: 0, SEED + 1: 0}
    for number in [SEED, SEED + 1] * 200:
        generator.restore(number, offsets[number])
        random.normal(np, generator, 3, F32)
        random.uniform(np, generator, 2, F32)
        offsets[number] = generator.offset
    assert len(computed) <= 4


@needs_calls_in_c
@pytest.mark.parametrize("seed_bits", [1, 33, 64])
@pytest.mark.parametrize("first", [0, 5, (1 << 32) - 3, (1 << 64) - 2])
def test_words_in_c_are_the_same(seed_bits: int, first: int, seed: int) -> None:
    number = Random(seed).getrandbits(seed_bits)
    words = NativePhilox(native.load().philox, number, 300)
    for blocks in (1, 7, 300):
        assert words.words(first, blocks).tolist() == Philox(np, number, 300).words(first, blocks).tolist()
