"""Which joined products are usual: those of Transformers that decode, a token of one sample or of two at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from server.engine import context, keys
from server.engine import functional as F
from server.engine.cuda.texts import DEVICE, DescribedDevice
from server.engine.programs.analysis import Analysis
from server.engine.programs.expansion import traced
from server.engine.programs.grouping import Grouping
from server.engine.programs.joined import PRODUCTS, Joined
from server.engine.programs.joins.products import join_products, lowered_products
from server.engine.programs.joins.uses import Uses
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta

from . import few_rows
from .joined_products import prepared

_GPT: Final = (768, 1024, 1280, 1600)
"""Widths of models in the shape of GPT-2, from the smallest to the largest."""
_LLAMA: Final = ((2048, 512, 8192), (3072, 1024, 8192), (4096, 1024, 14336), (4096, 4096, 11008))
"""Widths of the residual path, of keys, and between the two products of a gated perceptron."""


def usual_loads() -> None:
    """Load the kernels of usual models."""
    for dtype, rows in itertools.product((dtypes.bfloat16, dtypes.float32), (1, 2)):
        for width in _GPT:
            _load(_of_gpt(dtype, rows, width))
        for width, keys_, inner in _LLAMA:
            _load(_of_llama(dtype, rows, width, keys_, inner))


def check_loads(dtype: DType) -> None:
    """Load kernels of every kind of part for a type."""
    if dtype in few_rows.MOST_ROWS:
        for rows in range(1, few_rows.MOST_ROWS[dtype] + 1):
            _load(_of_gpt(dtype, rows, 768))
            _load(_of_llama(dtype, rows, 2048, 512, 8192))


def _load(joined: Iterator[Joined]) -> None:
    for one in joined:
        prepared(one)


def _of_gpt(dtype: DType, rows: int, width: int) -> Iterator[Joined]:
    x, wide, norm = _of(dtype, rows, 1, width), _of(dtype, rows, 1, 4 * width), _of(dtype, width)

    def normal(x: Any, scale: Any, shift: Any) -> Any:
        return F._layer_norm(x, (width,), scale, shift, 1e-5)[0]

    def attended(x: Any, s: Any, t: Any, w: Any, b: Any) -> Any:
        return F.linear(normal(x, s, t), w, b)

    for columns in (3 * width, 50257):
        weight = _of(dtype, columns, width)
        yield from _joined(lambda x, s, t, w: F.linear(normal(x, s, t), w), [x, norm, norm, weight])
        yield from _joined(attended, [x, norm, norm, weight, _of(dtype, columns)])
    up = [x, norm, norm, _of(dtype, 4 * width, width), _of(dtype, 4 * width)]
    yield from _joined(lambda *given: F.gelu(attended(*given), approximate="tanh"), up)
    yield from _joined(lambda *given: F.gelu(attended(*given), approximate="none"), up)
    for given in (x, wide):
        operands = [given, _of(dtype, width, given.shape[-1]), _of(dtype, width), x]
        yield from _joined(lambda x, w, b, more: F.add(more, F.linear(x, w, b)), operands)
        yield from _joined(lambda x, w, b, more: F.add(F.linear(x, w, b), more), operands)


def _of_llama(dtype: DType, rows: int, width: int, of_keys: int, inner: int) -> Iterator[Joined]:
    x, wide, norm = _of(dtype, rows, 1, width), _of(dtype, rows, 1, inner), _of(dtype, width)
    up, down = _of(dtype, inner, width), _of(dtype, width, inner)
    heads, shared = _of(dtype, width, width), _of(dtype, of_keys, width)

    def normal(x: Any, scale: Any) -> Any:
        return F._rms_norm(x, (width,), scale, 1e-5)[0]

    def attended(x: Any, s: Any, *weights: Any) -> tuple[Any, ...]:
        rows = normal(x, s)
        return tuple([F.linear(rows, weight) for weight in weights])

    def gated(x: Any, s: Any, gate: Any, up: Any) -> Any:
        rows = normal(x, s)
        return F.mul(F.silu(F.linear(rows, gate)), F.linear(rows, up))

    yield from _joined(attended, [x, norm, heads, shared, shared])
    yield from _joined(attended, [x, norm, _of(dtype, 32000, width)])
    yield from _joined(gated, [x, norm, up, up])
    for given, weight in ((x, heads), (wide, down)):
        yield from _joined(lambda x, w, more: F.add(more, F.linear(x, w)), [given, weight, x])
        yield from _joined(lambda x, w, more: F.add(F.linear(x, w), more), [given, weight, x])


def _of(dtype: DType, *shape: int) -> Meta:
    return Meta.of(shape, dtype, DEVICE)


@contextmanager
def _on_described_device() -> Iterator[None]:
    """Operations are those of a session of the described device, and of no other."""
    before = context.current
    context.activate(context.Context({DEVICE: DescribedDevice()}))  # type: ignore[dict-item]
    try:
        yield
    finally:
        context.activate(before)


def _joined(function: Callable[..., Any], metas: Sequence[Meta]) -> Iterator[Joined]:
    """The kernels of products that a function of tensors becomes on a GPU."""
    with _on_described_device():
        graph = traced(function, metas)
    known = dict(zip(graph.inputs, metas, strict=True))
    analysis = Analysis(graph.steps, known, {slot: number for number, slot in enumerate(graph.inputs)})
    uses = Uses(graph.steps, analysis, graph.outputs)
    for group in join_products(Grouping(graph.steps, analysis, {DEVICE: keys.CUDA}), uses).ordered():
        if group.kind == PRODUCTS:
            made = lowered_products(group.positions, graph.steps, analysis, uses.needed(group.positions))
            assert made is not None and isinstance(made.kernel, Joined)
            yield made.kernel
