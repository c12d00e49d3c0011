"""Which tensors are joined by one launch, and which element goes where; what the kernel computes is repeated here."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine.cuda.pointwise import joining
from telegrad_protocol import dtypes
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import rearrange

from .cuda_registrations import registrations, withdraw

_ = registrations
withdraw()

DEVICE = Device("cuda:0")
TYPES = (dtypes.uint8, dtypes.bfloat16, dtypes.float32, dtypes.complex128)


def _somewhere(rng: np.random.Generator, shape: list[int], dtype: dtypes.DType) -> tuple[Meta, np.ndarray]:
    """A tensor in any layout, and memory that it lies in."""
    order = rng.permutation(len(shape)) if rng.random() < 0.5 else np.arange(len(shape))
    strides, reach = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = reach
        reach *= shape[dim] + int(rng.choice([0, 0, 0, 1, 4]))
    if rng.random() < 0.1:
        strides[rng.integers(len(shape))] = 0
    offset = int(rng.choice([0, 0, 8, 3]))
    return Meta.of(tuple(shape), dtype, DEVICE, tuple(strides), offset), rng.standard_normal(offset + reach + 8)


def _elements(meta: Meta, memory: np.ndarray) -> np.ndarray:
    steps = [memory.itemsize * step for step in meta.strides]
    return np.lib.stride_tricks.as_strided(memory[meta.offset :], meta.shape, steps)


def _pairs(metas: list[Meta], out: Meta, dim: int) -> list[tuple[Meta, Meta]]:
    at, lengths = rearrange.joined("cat", tuple(metas), dim)
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    return [(joining._part(out, at, *part), meta) for *part, meta in zip(starts, lengths, metas, strict=True)]


def _moved(joint: joining.Joint, memories: list[np.ndarray], size: int, numel: int) -> np.ndarray:
    """What the threads of the kernel write, where an element of the memory stands for so many bytes."""
    found = np.full(numel, np.nan)
    for i in range(joint.parts[0].height * joint.length):
        row, column = divmod(i, joint.length)
        outer, inner = divmod(row, joint.parts[0].group)
        for rows, memory in zip(joint.parts, memories, strict=True):
            if column < rows.length:
                begin = rows.offset + outer * rows.steps[0] + inner * rows.steps[1] + column
                for byte in range(0, joint.unit, min(size, joint.unit)):
                    found[(i * joint.unit + byte) // size] = memory[(begin * joint.unit + byte) // size]
                break
            column -= rows.length
    return found


def test_each_element_goes_to_its_place(rng: np.random.Generator) -> None:
    joint_ones = 0
    for _ in range(600):
        dim, dtype = int(rng.integers(ndim := int(rng.integers(1, 5)))), TYPES[rng.integers(len(TYPES))]
        shape = rng.choice([1, 2, 3, 4, 8], ndim).tolist()
        shapes = [
            [*shape[:dim], int(rng.choice([1, 2, 4, 5, 8])), *shape[dim + 1 :]] for _ in range(rng.integers(2, 5))
        ]
        metas, memories = map(list, zip(*[_somewhere(rng, one, dtype) for one in shapes], strict=True))
        expected = np.concatenate([_elements(*one) for one in zip(metas, memories, strict=True)], dim)
        out = Meta.of(expected.shape, dtype, DEVICE, contiguous_strides(expected.shape))
        joint = joining.joint_of(_pairs(metas, out, dim))
        if joint is not None:
            joint_ones += 1
            found = _moved(joint, memories, dtype.itemsize, expected.size)
            assert np.array_equal(found.reshape(expected.shape), expected), (metas, dim, joint)
    assert joint_ones > 100


def _joint(first: Meta, second: Meta, shape: tuple[int, ...], dim: int) -> joining.Joint | None:
    out = Meta.of(shape, first.dtype, DEVICE, contiguous_strides(shape))
    return joining.joint_of(_pairs([first, second], out, dim))


@pytest.mark.parametrize("batch", [1, 8])
def test_a_cache_and_a_new_token_are_joined_by_one_launch_in_the_widest_units(batch: int) -> None:
    cache = Meta.of((batch, 12, 20, 64), dtypes.bfloat16, DEVICE, contiguous_strides((batch, 12, 20, 64)))
    token = Meta.of((batch, 12, 1, 64), dtypes.bfloat16, DEVICE, (2304, 64, 2304, 1), 768)
    joint = _joint(cache, token, (batch, 12, 21, 64), 2)
    assert joint is not None
    assert joint.unit == 16
    assert [rows.length for rows in joint.parts] == [20 * 8, 8]


def test_what_is_large_or_of_other_types_is_copied_one_by_one() -> None:
    row = Meta.of((1, 1 << 20), dtypes.float32, DEVICE, (1 << 20, 1))
    other = Meta.of((1, 1 << 20), dtypes.float16, DEVICE, (1 << 20, 1))
    assert _joint(row, row, (2, 1 << 20), 0) is None
    assert _joint(row, other, (2, 1 << 20), 0) is None
