"""What is worked out for a new shape is what it is defined to be, whatever shapes came before."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.driver")

from server.engine.cuda.families import import_families
from server.engine.cuda.gemm.layout import Matrices, flattened, matrices, side
from server.engine.cuda.runtime import launch as launches
from server.engine.cuda.runtime.geometry import VECTOR_BYTES, Layout, collapse, layout_of, vector_width
from server.engine.cuda.runtime.launch import Collection, collecting
from server.engine.cuda.texts import DEVICE, ask, call
from telegrad_protocol import dtypes
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.layout import broadcast_strides, contiguous_strides, is_contiguous
from telegrad_protocol.meta import Meta
from tests.engine.cuda_registrations import registrations as registrations
from tests.engine.cuda_registrations import withdraw

MODULES = import_families()
withdraw()
SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 129, 1000, 1024, 1025, 4096)
LONG = ((1 << 31) - 1, 1 << 31, (1 << 31) + 4)
TYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float64)


def _meta(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = dtypes.float32) -> Meta:
    """A tensor of a shape: row-major most times, or transposed, or with gaps; it may begin anywhere in its memory."""
    offset = int(rng.choice((0, 0, 0, 1, 4, 8)))
    if not shape or rng.random() < 0.6:
        return Meta.of(shape, dtype, DEVICE, None, offset)
    order = [int(d) for d in rng.permutation(len(shape))]
    apart = contiguous_strides(tuple([shape[d] + int(rng.choice((0, 0, 1, 4))) for d in order]))
    strides = dict(zip(order, apart, strict=True))
    return Meta.of(shape, dtype, DEVICE, tuple([strides[d] for d in range(len(shape))]), offset)


def _sizes(rng: np.random.Generator, count: int, long: bool = True) -> tuple[int, ...]:
    if long and rng.random() < 0.05:
        return (int(rng.choice(LONG)), *(1,) * (count - 1))
    return tuple([int(n) for n in rng.choice(SIZES, count)])


def _call(rng: np.random.Generator) -> Any:
    """A call of one of the operations that models consist of, on operands of random shapes."""
    dtype = TYPES[rng.integers(len(TYPES))]
    a, b, c = _sizes(rng, 3)
    x, index = _meta(rng, (a, b, c), dtype), Meta.of((a, b), dtypes.int64, DEVICE)
    row, table = Meta.of((c,), dtype, DEVICE), Meta.of((max(b, 1), c), dtype, DEVICE)
    heads = [_meta(rng, (2, 4, n, 32), dtype) for n in (b, b, b)]
    calls = (
        lambda: call("add", x, _meta(rng, (a, b, c), dtype)), lambda: call("add", x, row),
        lambda: call("mul", x, float(rng.choice((0.0, -0.0, 1.5, 3.0)))), lambda: call("gelu", x),
        lambda: call("add", x, row, alpha=float(rng.choice((0.0, -0.0, 2.0)))),
        lambda: call("_in_layout", x, contiguous_strides(x.shape)), lambda: call("_to_copy", x, dtypes.float32),
        lambda: call("cat", (x, _meta(rng, (a, b, c), dtype)), int(rng.integers(3))),
        lambda: call("sum", x, (int(rng.integers(3)),)), lambda: call("softmax", x, -1),
        lambda: call("_layer_norm", x, (c,), row, row, 1e-5), lambda: call("_embedding", index, table),
        lambda: call("_attention", *heads, None, bool(rng.integers(2)), 0.125, bool(rng.integers(2))),
        lambda: call("where", _meta(rng, (a, b, c), dtypes.bool_), x, row),
    )  # fmt: skip
    return calls[rng.integers(len(calls))]()


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What kernels are asked to prepare: name and text, geometry, constants as bytes."""
    made: list[tuple[Any, ...]] = []

    def collected(source: str, name: str, options: tuple[str, ...], caller: Any) -> Any:
        kernel = launches._CollectedKernel(name)

        def prepare(
            grid: Any, block: Any, varying: Any = "P", constants: Any = (), shared: int = 0, **more: Any
        ) -> Any:  # fmt: skip
            held = [
                one if isinstance(one, bytes) else struct.pack(f"={launches.FORMS[one[0]]}", one[1])
                for one in constants
            ]
            made.append((name, source, options, grid, block, tuple(varying), held, shared, more))
            return lambda *given: None

        kernel.prepare = prepare  # type: ignore[method-assign]
        return kernel

    monkeypatch.setattr(launches, "collected", collected)
    return made


def _forget(modules: list[ModuleType]) -> None:
    """Empty what the modules remember of earlier calls."""
    for module in modules:
        for item in list(vars(module).values()):
            if hasattr(item, "cache_clear"):
                item.cache_clear()


def _asked(one: Any, prepared: list[tuple[Any, ...]]) -> list[tuple[Any, ...]] | str:
    prepared.clear()
    try:
        with collecting("sm_90", Collection()):
            ask(one)
    except TelegradError as error:
        return str(error)
    return prepared.copy()


def test_kernels_of_a_shape_are_the_same_whatever_came_before(
    rng: np.random.Generator, prepared: list[tuple[Any, ...]]
) -> None:
    calls = [_call(rng) for _ in range(600)]
    after_others = [_asked(one, prepared) for one in calls]
    fresh = []
    for one in calls[::3]:
        _forget(MODULES)
        fresh.append(_asked(one, prepared))
    for one, warm, cold in zip(calls[::3], after_others[::3], fresh, strict=True):
        assert warm == cold, one
    assert sum([bool(warm) and not isinstance(warm, str) for warm in after_others]) > 300


def _layouts(rng: np.random.Generator) -> Iterator[tuple[tuple[int, ...], list[Meta]]]:
    for _ in range(2000):
        shape = _sizes(rng, int(rng.integers(0, 4)), long=False)
        shapes = [tuple([n if rng.random() < 0.8 else 1 for n in shape]) for _ in range(int(rng.integers(1, 4)))]
        same = rng.random() < 0.5
        yield shape, [_meta(rng, shape if same else one) for one in shapes]


def test_row_major_operands_lie_as_all_others_do(rng: np.random.Generator) -> None:
    for shape, metas in _layouts(rng):
        strides = [broadcast_strides(meta.shape, meta.strides, shape) for meta in metas]
        for ordered in (False, True):
            expected = collapse(shape, strides, [meta.offset for meta in metas], ordered=ordered)
            if 0 not in shape:
                assert layout_of(shape, metas, ordered=ordered) == expected, (shape, metas)


def _can_move(layout: Layout, runs: list[int], width: int, head: int) -> bool:
    """Whether vectors of a width after so many elements lie where vectors may, in each operand that is a run."""
    if not layout.is_flat:
        steps = [step for k in runs for step in layout.strides[k][:-1]]
        return not any([n % width for n in (layout.shape[-1], *steps, *[layout.offsets[k] for k in runs])])
    return all([(layout.offsets[k] + head) % width == 0 for k in runs])


def test_vectors_are_the_widest_that_all_operands_can_be_read_in(rng: np.random.Generator) -> None:
    for shape, metas in _layouts(rng):
        layout, itemsizes = layout_of(shape, metas), [int(rng.choice((1, 2, 4, 8, 16))) for _ in metas]
        width, head = vector_width(layout, itemsizes)
        runs = [k for k, steps in enumerate(layout.strides) if any(steps) and steps[-1] == 1]
        if any([steps[-1] not in (0, 1) for steps in layout.strides if any(steps)]):
            assert (width, head) == (1, 0)
            continue
        most = max(1, VECTOR_BYTES // max([itemsizes[k] for k in runs], default=VECTOR_BYTES))
        possible = [w for w in (1, 2, 4, 8, 16) if w <= most and any(_can_move(layout, runs, w, h) for h in range(w))]
        assert width == max(possible)
        assert head == layout.numel or _can_move(layout, runs, width, head)


def _addresses(of: Matrices) -> np.ndarray[Any, Any]:
    rows, columns = np.arange(of.rows)[:, None], np.arange(of.columns)[None, :]
    return of.offset + rows * of.row_step + columns * of.column_step


def test_matrices_and_their_transposes_tell_where_the_same_elements_lie(rng: np.random.Generator) -> None:
    small = [n for n in SIZES if n < 40]
    for _ in range(1000):
        meta = _meta(rng, tuple([int(n) for n in rng.choice(small, int(rng.integers(2, 4)))]))
        places = meta.offset + np.zeros(meta.shape, np.int64)
        for d, (n, step) in enumerate(zip(meta.shape, meta.strides, strict=True)):
            places += np.arange(n).reshape(-1, *(1,) * (meta.ndim - 1 - d)) * step
        of = flattened(meta)
        if meta.numel and (of.row_step or of.rows == 1):
            np.testing.assert_array_equal(_addresses(of), places.reshape(math.prod(meta.shape[:-1]), meta.shape[-1]))
        if meta.ndim == 2:
            of = matrices(meta)
            np.testing.assert_array_equal(_addresses(of), places)
            np.testing.assert_array_equal(_addresses(of.T), places.T)
        assert of == of.T.T and of.is_by_columns == of.T.is_by_rows
        assert of.is_blas == (of.is_by_rows or of.T.is_by_rows)
        if of.is_blas:
            described, transposed = side(of)
            columns = _addresses(of) if transposed else _addresses(of).T
            assert (described.rows, described.columns) == columns.shape
            assert described.leading >= described.rows
            if described.columns > 1 and described.rows:
                assert columns[0, 1] - columns[0, 0] == described.leading


def test_equal_metas_are_one_whichever_way_they_are_described(rng: np.random.Generator) -> None:
    for _ in range(1000):
        shape, offset = _sizes(rng, int(rng.integers(0, 5)), long=False), int(rng.integers(3))
        row_major = contiguous_strides(shape)
        ways = [None, row_major]
        first, second = [Meta.of(shape, dtypes.float32, DEVICE, ways[k], offset) for k in rng.permutation(2)]
        assert first is second and first.strides == row_major and first.is_contiguous
        meta = _meta(rng, shape)
        assert meta.is_contiguous == is_contiguous(meta.shape, meta.strides)
        assert Meta.of(shape, meta.dtype, DEVICE, meta.strides, meta.offset) is meta
