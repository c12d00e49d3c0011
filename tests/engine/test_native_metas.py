"""Metas are the same in C and in Python: their properties, which of them are one object, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.engine.in_c.metas import meta_in_python
from telegrad_protocol import dtypes
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.layout import contiguous_strides
from telegrad_protocol.meta import CPU, Device, Meta
from tests.support.compilers import needs_calls_in_c

pytestmark = needs_calls_in_c
SIZES = (0, 1, 1, 2, 3, 4, 7, 1024, 1 << 31, (1 << 40) - 1, 1 << 40, 1 << 59, 1 << 62, 1 << 63)
TYPES = (dtypes.float32, dtypes.bool_, dtypes.complex128)
PROPERTIES = ("shape", "strides", "offset", "dtype", "device", "ndim", "numel", "is_contiguous", "extent", "nbytes")
OF_C, OF_PYTHON = 9_001, 9_002


@pytest.fixture(autouse=True)
def own_domains() -> Iterator[None]:
    yield
    Meta.use_domain(0)


def _described(rng: np.random.Generator) -> tuple[Any, ...]:
    ndim = int(rng.integers(5)) if rng.random() < 0.98 else int(rng.integers(62, 67))
    small = rng.random() < 0.8
    shape = tuple([int(rng.choice(SIZES[:7] if small else SIZES)) for _ in range(ndim)]) if ndim < 5 else (1,) * ndim
    strides: Any = None
    if rng.random() < 0.6:
        strides = contiguous_strides(shape)
        if rng.random() < 0.7:
            strides = tuple([int(s) for s in rng.permutation(np.array(strides, object))])
        if rng.random() < 0.3:
            strides = tuple([int(rng.choice((0, 1, 2, -1, 1 << 40))) if rng.random() < 0.3 else s for s in strides])
    offset = int(rng.choice((0, 0, 0, 1, 5, 1 << 41)))
    return shape, TYPES[rng.integers(3)], (CPU, Device("cuda", 0))[rng.integers(2)], strides, offset


def _outcome(make: Any, domain: int, given: tuple[Any, ...]) -> tuple[Any, Any]:
    Meta.use_domain(domain)
    try:
        meta = make(*given)
    except (TelegradError, TypeError, ValueError) as error:
        return None, (type(error), str(error))
    return meta, tuple([getattr(meta, name) for name in PROPERTIES])


def test_metas_have_the_same_properties_and_are_one_object_where_those_of_python_are(rng: np.random.Generator) -> None:
    assert Meta.of is not meta_in_python
    kept: list[tuple[Meta, Meta]] = []
    for _ in range(4000):
        given = _described(rng)
        if rng.random() < 0.2 and kept:
            before = kept[rng.integers(len(kept))][0]
            given = (
                before.shape,
                before.dtype,
                before.device,
                None if rng.random() < 0.5 else before.strides,
                before.offset,
            )
        (in_c, of_c), (in_python, of_python) = (
            _outcome(Meta.of, OF_C, given),
            _outcome(meta_in_python, OF_PYTHON, given),
        )
        assert of_c == of_python, given
        if in_c is not None:
            same_in_c = [number for number, (one, _) in enumerate(kept) if one is in_c]
            assert same_in_c == [number for number, (_, one) in enumerate(kept) if one is in_python], given
            kept.append((in_c, in_python))
            assert in_c.at_start.offset == 0


def test_metas_are_given_by_keywords_lists_and_defaults() -> None:
    meta = Meta.of((2, 3), dtypes.float32)
    assert Meta.of([2, 3], dtypes.float32) is meta
    assert Meta.of(shape=(2, 3), dtype=dtypes.float32, device=CPU, strides=(3, 1), offset=0) is meta
    assert meta.device is CPU and meta.like(offset=4).offset == 4


def test_nobody_keeps_a_meta_that_is_not_used() -> None:
    import weakref

    Meta.use_domain(OF_C)
    meta = Meta.of((3, 5, 7), dtypes.float32, CPU, (35, 7, 1), 2)
    gone, key = weakref.ref(meta), ((3, 5, 7), dtypes.float32, CPU, (35, 7, 1), 2)
    del meta
    assert gone() is None
    assert Meta.of(*key).offset == 2
