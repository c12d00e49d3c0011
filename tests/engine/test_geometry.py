"""The geometry of element-wise kernels: layouts collapse without moving an element, vectors never miss their places."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest

from server.engine.cuda.runtime import geometry
from server.engine.cuda.runtime.geometry import Layout, collapse, divider, layout_of, packed, vector_width
from telegrad_protocol import dtypes
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.meta import Meta


def _places(layout: Layout) -> np.ndarray:
    """Where the elements lie in each operand, one row per element, sorted."""
    operands = list(zip(layout.offsets, layout.strides, strict=True))
    found = []
    for index in itertools.product(*[range(n) for n in layout.shape]):
        found.append([o + sum(i * s for i, s in zip(index, steps, strict=True)) for o, steps in operands])
    return np.array(sorted(found))


def test_collapsed_layouts_reach_the_same_elements(rng: np.random.Generator) -> None:
    for _ in range(200):
        shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 6)))
        operands = []
        for _ in range(int(rng.integers(1, 4))):
            order = rng.permutation(len(shape))
            dense = dict(zip(order, contiguous_strides(tuple(shape[d] for d in order)), strict=True))
            steps = tuple(int(dense[d]) if operands == [] or rng.random() < 0.8 else 0 for d in range(len(shape)))
            operands.append(steps)
        offsets = [int(n) for n in rng.integers(0, 9, len(operands))]
        plain = Layout(shape, tuple(operands), tuple(offsets))
        for ordered in (False, True):
            found = collapse(shape, operands, offsets, ordered=ordered)
            assert len(found.shape) <= len(shape)
            np.testing.assert_array_equal(_places(found), _places(plain))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_operands_permuted_alike_are_one_run(order: tuple[int, ...]) -> None:
    dense = contiguous_strides(tuple((3, 4, 5)[d] for d in order))
    steps = tuple(dense[order.index(d)] for d in range(3))
    assert collapse((3, 4, 5), [steps, steps], [0, 0]) == Layout((60,), ((1,), (1,)), (0, 0))


def test_divisions_by_multiplication_are_exact(rng: np.random.Generator) -> None:
    for _ in range(5000):
        divisor = int(rng.integers(1, 1 << int(rng.integers(1, 32))))
        factor, shift = divider(divisor)
        multiple = int(rng.integers(0, (1 << 31) // divisor + 1)) * divisor
        for number in (multiple - 1, multiple, (1 << 31) - 1):
            if 0 <= number < 1 << 31:
                assert (((number * factor) >> 32) + number) >> shift == number // divisor


@pytest.mark.parametrize(
    ("offsets", "expected"), [((0, 0), (4, 0)), ((1, 1), (4, 3)), ((1, 5), (4, 3)), ((2, 0), (2, 0)), ((1, 0), (1, 0))]
)
def test_flat_vectors_begin_where_all_operands_can(offsets: tuple[int, int], expected: tuple[int, int]) -> None:
    assert vector_width(Layout((100,), ((1,), (1,)), offsets), (4, 4)) == expected


def test_vectors_divide_rows_and_steps() -> None:
    row = Meta.of((64,), dtypes.float32)

    def width(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0) -> int:
        matrix = Meta.of(shape, dtypes.float32, strides=strides, offset=offset)
        second = row if shape[-1] == 64 else Meta.of(shape[-1:], dtypes.float32)
        return vector_width(layout_of(shape, [matrix, second]), (4, 4))[0]

    assert width((8, 64)) == 4
    assert width((8, 64), (66, 1)) == 2
    assert width((8, 64), (64, 1), 1) == 1
    assert width((8, 63)) == 1
    assert width((8, 64), (128, 2)) == 1


def test_what_is_packed_counts_vectors(rng: np.random.Generator) -> None:
    layout = collapse((6, 8), [(8, 1), (0, 1), (1, 0)], [0, 0, 0])
    numbers = struct.unpack("<12I", packed(layout, 4))
    assert numbers[:2] == (2, 6)
    assert numbers[6:] == (4, 8, 4, 0, 0, 1)


def test_large_layouts_take_wide_indices() -> None:
    assert not Layout((1 << 31 >> 1,), ((1,),), (0,)).is_wide
    assert Layout((1 << 31,), ((1,),), (0,)).is_wide
    assert Layout((1 << 20,), ((1 << 12,),), (0,)).is_wide
    assert geometry.layout_type(Layout((1 << 31, 2), ((4, 1),), (0,))) == "wide_layout<2, 1>"
