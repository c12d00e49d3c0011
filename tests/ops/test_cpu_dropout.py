"""Dropout by compiled loops, beside the same by NumPy from the same words: to the bit, with any number of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.engine import compiled, random
from server.engine.cpu import dropout
from server.engine.device import threads
from server.engine.ops.layers import nn as generic

SIZES = (compiled.LEAST, 3 * compiled.LEAST + 5, 700_003)


@pytest.fixture(autouse=True, params=[1, 3])
def some_threads(monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[None]:
    monkeypatch.setattr(threads, "count", lambda: request.param)
    yield
    threads.stop()


def refuse(*args: Any, **options: Any) -> None:
    raise AssertionError("the generic kernel was called")


def generators(rng: np.random.Generator) -> list[random.Generator]:
    """Two of one state, from which the number of a block may pass 2**32 or 2**64."""
    seed, first = int(rng.integers(1 << 63)) * 2 + 1, int(rng.choice([0, (1 << 32) - 99, (1 << 64) - 77]))
    print(f"seed {seed}, block {first}")
    both = [random.Generator(seed), random.Generator(seed)]
    for each in both:
        each.restore(seed, first)
    return both


@pytest.mark.parametrize("p", [0.0, 0.1, 1 / 3, 0.999, 1.0])
def test_elements_and_mask_are_those_of_numpy(rng: Any, monkeypatch: pytest.MonkeyPatch, p: float) -> None:
    for size in SIZES:
        x = rng.standard_normal(size).astype("f")
        x[rng.integers(0, size, 9)] = [math.inf, -math.inf, math.nan, -0.0, 0.0, 1e-45, 3e38, -3e38, -1e-45]
        ours, theirs = generators(rng)
        expected = np.empty_like(x), np.empty(size, np.bool_)
        generic.native_dropout(np, x, p, True, generator=theirs, out=expected)
        found = np.empty_like(x), np.empty(size, np.bool_)
        with monkeypatch.context() as patch:
            patch.setattr(generic, "native_dropout", refuse)
            dropout.native_dropout(np, x, p, True, generator=ours, out=found)
        assert np.array_equal(found[1], expected[1])
        assert np.array_equal(found[0].view(np.int32), expected[0].view(np.int32))
        assert ours.offset == theirs.offset
        check_backward(rng, expected[1], generic.dropout_scale(p), monkeypatch)


def check_backward(rng: Any, mask: Any, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    grad = rng.standard_normal(mask.size).astype("f")
    grad[:3] = math.inf, math.nan, -0.0
    expected, found = np.empty_like(grad), np.empty_like(grad)
    generic.native_dropout_backward(np, grad, mask, scale, out=expected)
    with monkeypatch.context() as patch:
        patch.setattr(generic, "native_dropout_backward", refuse)
        dropout.native_dropout_backward(np, grad, mask, scale, out=found)
    assert np.array_equal(found.view(np.int32), expected.view(np.int32))


def test_what_loops_do_not_take_is_left_to_numpy(rng: Any) -> None:
    x = rng.standard_normal((300, 200)).astype("f")
    for source, dtype in ((x.T, "f"), (x.astype("d"), "d"), (x[:10], "f")):
        ours, theirs = generators(rng)
        found, expected = ((np.empty(source.shape, dtype), np.empty(source.shape, np.bool_)) for _ in range(2))
        dropout.native_dropout(np, source, 0.25, True, generator=ours, out=found)
        generic.native_dropout(np, source, 0.25, True, generator=theirs, out=expected)
        assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))


def test_without_training_all_is_kept(rng: Any) -> None:
    x = rng.standard_normal(compiled.LEAST).astype("f")
    output, mask = np.empty_like(x), np.empty(x.size, np.bool_)
    gen = random.Generator(1)
    dropout.native_dropout(np, x, 0.5, False, generator=gen, out=(output, mask))
    assert mask.all()
    assert np.array_equal(output, x)
    assert gen.offset == 0


@pytest.mark.parametrize("draw", ["random_words", "random_words64"])
def test_words_are_those_of_numpy(rng: Any, monkeypatch: pytest.MonkeyPatch, draw: str) -> None:
    for size in (1, 257, *(int(n) for n in rng.integers(1, 200_000, 3))):
        ours, theirs = generators(rng)
        found = getattr(random, draw)(np, ours, size)
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "kernels", lambda name="": None)
            patch.setattr(compiled, "loaded", lambda name="": None)
            expected = getattr(random, draw)(np, theirs, size)
        assert np.array_equal(found, expected)
