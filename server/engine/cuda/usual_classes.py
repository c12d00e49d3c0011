"""Calls that complete the usual ones: for what programs do most, each class of lengths, alignments and layouts.

A text depends on how long rows are in steps, on the widest access that sizes and strides allow, and on how many
dimensions are left of a layout. The sizes here are products of few numbers that each stand for one class of these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.foreach import EXPRESSIONS

from .optim.multi_tensor import CAPACITIES
from .texts import DEVICE, Call, call
from .usual_elements import element_calls, other_calls
from .usual_layouts import layout_calls, mask_calls
from .usual_lines import TYPES, line_calls, order_calls, reduced_lengths
from .usual_masks import selection_calls

_COMPARED: Final = ("lt", "ge", "gt", "le", "eq")


def class_calls() -> Iterator[Call]:
    """Yield the calls whose kernels are compiled ahead: one for each class of sizes and layouts."""
    for dtype in TYPES:
        yield from line_calls(dtype)
        yield from layout_calls(dtype)
        yield from _places(dtype)
        yield from _pictures(dtype)
        yield from _updates(dtype)
        yield from _single(dtype)
        yield from element_calls(dtype)
    yield from other_calls()
    yield from order_calls()
    yield from _tokens()
    yield from _numbers()
    yield from mask_calls()
    yield from selection_calls()


def _of(dtype: DType, *shape: int, strides: Size | None = None, offset: int = 0) -> Meta:
    return Meta.of(shape, dtype, DEVICE, strides, offset)


def _places(dtype: DType) -> Iterator[Call]:
    """Yield calls that take or put rows and elements by their index, and their gradients."""
    for width, count in itertools.product((1, 2, 3, 4, 6, 8, 12, 16, 33, 34, 36, 40, 64, 768), (1, 30)):
        table, ids = _of(dtype, 64, width), _of(dtypes.int64, count)
        yield call("_embedding", _of(dtypes.int64, 1, count), table, -1, False)
        yield call("embedding_dense_backward", _of(dtype, 1, count, width), _of(dtypes.int64, 1, count), 64, -1, False)
        yield call("index_select", table, 0, ids)
        yield call("index", table, (ids,))
        yield call("index_select", _of(dtype, 8, 5, width), 1, ids)
        yield call("index_add", table, 0, ids, _of(dtype, count, width))
        yield call("index_put", table, (ids,), _of(dtype, count, width), True)
        for name, given in (("index_select", ()), ("index_add", (_of(dtype, 8, 4, count, width),))):
            yield call(name, _of(dtype, 8, 4, 5, width), 2, ids, *given)
    for width in (8, 16, 18, 17):  # of a cache of keys, whose heads lie between its places
        heads = _of(dtype, 4, 3, 5, width, strides=(15 * width, width, 3 * width, 1))
        for dim in (0, 2):
            yield call("index_select", heads, dim, _of(dtypes.int64, 7))
            yield call("index", heads, (_of(dtypes.int64, 7),))
    places = _of(dtypes.int64, 3, 4, 5)
    for dim in (0, 1, 2):
        x = _of(dtype, 3, 4, 5)
        yield call("gather", x, dim, places)
        yield call("scatter_add", x, dim, places, x)
        yield call("gather", _of(dtype, 64, 33), dim % 2, _of(dtypes.int64, 64, 1))
        yield call("scatter.value", _of(dtype, 64, 33), dim % 2, _of(dtypes.int64, 64, 1), 1.0)
        yield call("scatter_add", _of(dtype, 64, 33), dim % 2, _of(dtypes.int64, 64, 1), _of(dtype, 64, 1))


def _pictures(dtype: DType) -> Iterator[Call]:
    """Norms of batches over planes of every alignment and size, and elements of images of odd sizes."""
    for channels, plane in itertools.product((16, 256), ((3, 3), (5, 18), (9, 12), (32, 32), (17, 17), (64, 66))):
        x, wide = _of(dtype, 4, channels, *plane), _of(dtypes.float32, channels)
        for weight in {wide, _of(dtype, channels)}:
            yield call("_batch_norm", x, weight, weight, 1e-5)
            yield call("_batch_norm_gradients", x, x, wide, wide, weight)
        yield call("_group_norm", x, 8, _of(dtype, channels), _of(dtype, channels), 1e-5)
        groups = _of(dtypes.float32, 4, 8)
        yield call("_group_norm_gradients", x, x, groups, groups, _of(dtype, channels), 8)
    for count, channels in itertools.product((2, 33, 128, 1000), (10, 33, 64)):
        x, wide = _of(dtype, count, channels), _of(dtypes.float32, channels)
        yield call("_batch_norm", x, _of(dtype, channels), _of(dtype, channels), 1e-5)
        yield call("_batch_norm_gradients", x, x, wide, wide, _of(dtype, channels))


def _tokens() -> Iterator[Call]:
    """Indices of words by index: of beams that go on, and of those that are the best."""
    for width, batch in itertools.product((1, 5, 6, 8, 16), (1, 3)):
        tokens, ids = _of(dtypes.int64, 4, width), _of(dtypes.int64, 4)
        for name, given in (("index", ((ids,),)), ("index_select", (0, ids)), ("index_select", (1, ids))):
            yield call(name, tokens, *given)
        beams, best = _of(dtypes.int64, batch, 4, width), _of(dtypes.int64, batch, 1, width, strides=(1, 1, 0))
        yield call("gather", beams, 1, best)
        yield call("gather", beams, 1, _of(dtypes.int64, batch, 1, width))
        yield call("gather", tokens, 1, _of(dtypes.int64, 4, 1))
        yield call("cat", (tokens, _of(dtypes.int64, 4, 1)), 1)


def _numbers() -> Iterator[Call]:
    """Indices, counts and masks as numbers."""
    for dtype in (dtypes.int64, dtypes.int32):
        for shape, strides in (((64,), (1,)), ((12, 17), (34, 1)), ((12, 22), (44, 1))):
            x = _of(dtype, *shape, strides=strides)
            for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "floor_divide"):
                yield call(name, x, 5)
            for other in (dtypes.float32, dtypes.bool_, dtypes.int64, dtypes.int32):
                yield call("_to_copy", x, dtype=other)
            yield call("_in_layout", x, Meta.of(shape, dtype).strides)
        for second in (_of(dtype, 12, 16), _of(dtype, 12, 1), _of(dtype, 16), _of(dtype)):
            for name in ("add", "sub", "mul", *_COMPARED):
                yield call(name, _of(dtype, 12, 16), second)
        yield call("where", _of(dtypes.bool_, 12, 16), _of(dtype, 12, 16), _of(dtype, 12, 16))
        yield call("masked_fill", _of(dtype, 12, 16), _of(dtypes.bool_, 12, 16), 0)
    for end in (16, 22, 17):
        for name in _COMPARED:
            yield call(name, _of(dtypes.int64, end), _of(dtypes.int64, 12, 1))
            yield call(name, _of(dtypes.int64, 12, 1), _of(dtypes.int64, end))
    for dtype in (dtypes.int64, dtypes.bool_):
        for length in reduced_lengths():
            for name in ("all", "any", "sum") if dtype is dtypes.bool_ else ("sum",):
                yield call(name, _of(dtype, 64, length), 1)
        for name in ("sum", "any", "all") if dtype is dtypes.bool_ else ("sum", "max", "min", "argmax"):
            for length in (1, 3, 33, 64, 200, 1001, 4001, 1 << 20):
                yield call(name, _of(dtype, length))
        for width, units in itertools.product((1, 2), (1, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025)):
            yield call("cumsum", _of(dtype, 64, width * units), 1)
    for size in ((17, 17), (64, 64)):
        for dtype in (dtypes.bool_, dtypes.int64, *TYPES):
            for name in ("ones", "zeros"):
                yield call(name, size, dtype=dtype, device=DEVICE)
            yield call("eye", size[0], dtype=dtype, device=DEVICE)
            for name in ("triu", "tril"):
                yield call(name, _of(dtype, *size), 1)
    for length in (2, 5, 64):
        yield call("arange.start", 1, length, dtype=dtypes.int64, device=DEVICE)
        yield call("arange.start", 0, length, dtype=dtypes.float32, device=DEVICE)
    yield call("randint.low", 0, 256, (8, 3, 32, 32), dtype=dtypes.uint8, device=DEVICE)


def _updates(dtype: DType) -> Iterator[Call]:
    """Optimizers over parameters of which one launch does not do all, and what scaled gradients need."""
    number = _of(dtypes.float32)
    for side, count in itertools.product((64, 1024), CAPACITIES):
        some, steps = (_of(dtype, side, side),) * count, (number,) * count
        for name, scale, advance in itertools.product(
            ("_fused_adam_", "_fused_adamw_"), (None, number), (False, True)
        ):  # fmt: skip
            yield call(
                name, some, some, some, some, (), steps, lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8,
                amsgrad=False, maximize=False, grad_scale=scale, found_inf=scale, advance=advance,
            )  # fmt: skip
        if side == 64:
            for nesterov, is_first in itertools.product((False, True), (False, True)):
                yield call(
                    "_fused_sgd_", some, some, some, weight_decay=1e-4, momentum=0.9, lr=0.1, dampening=0.0,
                    nesterov=nesterov, maximize=False, is_first_step=is_first,
                )  # fmt: skip
            yield call("_amp_foreach_non_finite_check_and_unscale_", some, number, number)
    few = (_of(dtype, 64, 64),) * CAPACITIES[0]
    for expression, count in EXPRESSIONS.items():
        lists = [few if place < count else () for place in range(3)]
        yield call("_foreach_apply_", few, expression, *lists, (1.0,) * len(few))
    yield call("_foreach_zero_", few)
    yield call("_foreach_clamp_", few, -1.0, 1.0)


def _single(dtype: DType) -> Iterator[Call]:
    """Tensors of no dimensions and of one element, and elements in another order."""
    one, none = _of(dtype, 1), _of(dtype)
    for name in ("add", "sub", "mul", "div"):
        yield call(name, one, one)
        yield call(name, none, one)
        yield call(name, _of(dtype, 64), none)
    for shape in ((64,), (12, 17), (12, 16), (12, 20), (12, 22), (3, 4, 16), (3, 4, 17)):
        for dim in range(len(shape)):
            yield call("flip", _of(dtype, *shape), (dim,))
    for kind in (dtype, dtypes.int64, dtypes.int32, dtypes.bool_, dtypes.float64):
        for size in ((), (1,), (64,)):
            yield call("full", size, 0, dtype=kind, device=DEVICE)
    yield call("reciprocal", _of(dtypes.float64))
    yield call("_amp_update_scale_", _of(dtypes.float32), _of(dtypes.int32), _of(dtypes.float32), 2.0, 0.5, 100)
    for name, strides in itertools.product(_COMPARED, ((1, 0), (34, 1))):
        yield call(name, _of(dtype, 12, 17, strides=strides), 0)
