"""The calls whose kernels are compiled beforehand: what training and inference do most, in the types they do it in.

What is wanted first comes first; ``usual_classes`` completes it. A kernel's text depends on classes, such as how long
rows are or how dimensions collapse, so shapes here stand for their classes. Nothing is executed: a call has metas in
place of tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from server.engine.array_library.dtypes import HALVES
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.layout import Size
from telegrad_protocol.meta import Meta

from .attention.calls import HEADS, few_rows
from .attention.hopper_kernel_text import TILINGS
from .gemm import calls as gemm_calls
from .gemm import usual_products
from .index import joined_writes
from .layers import weight_gradients
from .optim.multi_tensor import CAPACITIES
from .pointwise import joining
from .random import placed_state
from .rows import column_sums, joined_norms
from .runtime.hopper_text import HOPPER
from .runtime.launch import Collection, collecting
from .texts import DEVICE, Call, call, texts_of
from .usual_classes import class_calls
from .usual_lines import TYPES

_UNARY = (
    "relu", "gelu", "silu", "sigmoid", "tanh", "softplus", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "abs",
    "neg", "sin", "cos", "sgn", "floor", "isnan", "isfinite", "clone", "zeros_like", "ones_like", "log1p", "expm1",
)  # fmt: skip
_BINARY = ("add", "sub", "mul", "div")
_RARER_BINARY = ("maximum", "minimum", "pow", "eq", "ne", "lt", "le", "gt", "ge")
_WITH_NUMBERS = ("add", "sub", "mul", "div", "pow", "eq", "ne", "gt", "lt", "ge", "le")
_BACKWARD = ("_relu_backward", "_gelu_backward", "_silu_backward", "_tanh_backward", "_sigmoid_backward")
_BROADCASTS: tuple[tuple[Size, Size], ...] = (
    ((64, 64), (64, 64)), ((64, 64), (64,)), ((64, 64), (64, 1)), ((64, 64), ()), ((), ()), ((64,), (64,)), ((64,), ()),
    ((63, 33), (63, 33)), ((63, 33), (33,)), ((63, 33), (63, 1)), ((33,), (33,)), ((8, 16, 32, 32), (1, 16, 1, 1)),
    ((8, 16, 32, 32), (8, 16, 1, 1)), ((8, 16, 32), (1, 16, 32)), ((8, 16, 32), (8, 1, 32)),
    ((8, 4, 64, 64), (1, 1, 64, 64)),
)  # fmt: skip
_USUAL_BROADCASTS = 5
_ROWS = (1, 2, 10, 16, 32, 33, 50, 64, 65, 100, 128, 256, 384, 512, 768, 1000, 1024, 2048, 4096, 8192, 32000, 50257)
"""Lengths of rows, of which classes of lengths and of alignment are made."""
_SUMMED: tuple[tuple[Size, tuple[int, ...]], ...] = (
    *(
        ((count, row), (dim,))
        for count, row, dim in itertools.product((8, 64, 8192), (10, 33, 64, 512, 768, 4096), (0, 1))
    ),
    ((8, 64, 128), (1,)), ((8, 63, 33), (1,)), ((8, 64, 128), (0, 1)), ((8, 63, 33), (0, 1)),
    ((8, 33), (0, 1)), ((8, 8), (0, 1)), ((64, 64), (0, 1)), ((512, 512), (0, 1)), ((4,), (0,)), ((8,), (0,)),
    ((8, 16, 15, 13), (0, 2, 3)), ((4, 1, 60, 52), (0, 2, 3)), ((4, 64, 8, 8), (0, 2, 3)), ((8, 16, 14, 14), (2, 3)),
    ((8, 16, 14, 14), (0, 2, 3)), ((3, 24, 128), (0,)), ((4, 3, 60, 52), (1,)),
    ((8, 16, 32, 32), (0, 2, 3)), ((8, 16, 32, 32), (2, 3)), ((8, 16, 15, 13), (2, 3)), ((8, 16, 32, 32), (1,)),
    ((), ()), ((1,), (0,)), ((33,), (0,)), ((64,), (0,)), ((4096,), (0,)), ((1 << 22,), (0,)), ((63, 33), (0, 1)),
)  # fmt: skip

_RARELY_REDUCED: tuple[Size, ...] = ((64, 10), (64, 33), (64, 64), (64, 512), (64, 4096), (33,), (4096,))
"""Shapes of which reductions other than sums are usual."""


def usual_texts(target: str) -> Collection:
    """The texts that usual calls need on an architecture, and the usual ones to which no operation leads."""
    collection = texts_of(usual_calls(target == HOPPER), target)
    with collecting(target, collection):
        placed_state.check_loads(dtypes.float32)
        joining.check_loads(dtypes.float32)
        joined_norms.usual_loads()
        column_sums.usual_loads()
        usual_products.usual_loads()
        joined_writes.usual_loads()
        weight_gradients.check_loads(dtypes.float32)
        for dtype in (*TYPES, dtypes.int64):
            gemm_calls.check_loads(dtype)
    return collection


def usual_calls(is_hopper: bool) -> Iterator[Call]:
    """All of them; those that have kernels of their own on Hopper too where it is one.

    Nothing that a library takes on: it would be asked for a device.
    """
    yield from _independent()
    for dtype in TYPES:
        for calls in (
            _attentions,
            _pointwise,
            _conversions,
            _reductions,
            _rows,
            _indices,
            _pictures,
            _updates,
            _others,
        ):
            yield from calls(dtype)
        if is_hopper and dtype in HALVES:
            for width, heads in itertools.product(TILINGS, HEADS):
                operand = Meta.of((heads, 1, 128, width), dtype, DEVICE)
                yield call("_attention", operand, operand, operand, None, True, 1.0, False)
    yield from class_calls()


def _of(dtype: DType, *shape: int, strides: Size | None = None) -> Meta:
    return Meta.of(shape, dtype, DEVICE, strides)


def _pointwise(dtype: DType) -> Iterator[Call]:
    mask = _of(dtypes.bool_, 64, 64)
    for x in (_of(dtype, 64, 64), _of(dtype, 63, 33), _of(dtype)):
        for name in _UNARY:
            yield call(name, x)
        for name in _BACKWARD:
            yield call(name, x, x)
        yield call("gelu", x, approximate="tanh")
        yield call("_gelu_backward", x, x, approximate="tanh")
        for name, number in itertools.product(_WITH_NUMBERS, (2.5, 2, 1, 0)):
            yield call(name, x, number)
        for name in ("add", "sub", "mul", "div", "pow"):
            yield call(name, 2.5, x)
        for name in ("add_", "sub_", "mul_", "div_"):
            yield call(name, x, x)
            yield call(name, x, 0.5)
        for name, given in {"clamp": (-1.0, 1.0), "leaky_relu": (0.2,), "elu": (1.0,), "hardtanh": (-1.0, 1.0)}.items():
            yield call(name, x, *given)
        yield call("clamp", x, 1e-8, None)
        yield call("add", x, x, alpha=0.1)
        yield call("lerp", x, x, x)
        yield call("addcmul", x, x, x)
    for names, broadcasts in ((_BINARY, _BROADCASTS), (_RARER_BINARY, _BROADCASTS[:_USUAL_BROADCASTS])):
        for name, (first, second) in itertools.product(names, broadcasts):
            yield call(name, _of(dtype, *first), _of(dtype, *second))
    x = _of(dtype, 64, 64)
    for other in (x, 0.0):
        yield call("where", mask, x, other)
        yield call("where", mask, 0.0, x)
    for shape, strides in (((64, 64), (0, 0)), ((63, 33), (0, 0)), ((8, 16, 14, 14), (16, 1, 0, 0))):
        x, one = _of(dtype, *shape), _of(dtype, *shape, strides=strides)  # a gradient that repeats elements
        for name in ("mul", "div", *_BACKWARD):
            yield call(name, one, x)
        for name in ("neg", "isnan"):
            yield call(name, one)
        for number in (0.5, 64):
            yield call("mul", one, number)
            yield call("div", one, number)
        yield call("where", _of(dtypes.bool_, *shape), one, 0.0)
        yield call("where", _of(dtypes.bool_, *shape), 0.0, one)
    x = _of(dtype, 64, 64)
    for target, where in (
        (x, mask),
        (_of(dtype, 8, 4, 64, 64), _of(dtypes.bool_, 64, 64)),
        (_of(dtype), _of(dtypes.bool_)),
    ):
        yield call("masked_fill", target, where, 0.0)
    for shape in ((64, 64), (63, 33)):
        yield call("native_dropout", _of(dtype, *shape), 0.1, True)
        yield call("native_dropout_backward", _of(dtype, *shape), _of(dtypes.bool_, *shape), 1.25)


def _conversions(dtype: DType) -> Iterator[Call]:
    for x in (_of(dtype, 64, 64), _of(dtype, 63, 33), _of(dtype)):
        for other in (*TYPES, dtypes.float64, dtypes.int64, dtypes.int32, dtypes.uint8, dtypes.bool_):
            y = _of(other, *x.shape)
            yield call("copy_", x, y)
            yield call("copy_", y, x)
            if other is not dtype:
                yield call("_to_copy", x, dtype=other)
                yield call("_to_copy", y, dtype=dtype)
    for shape, strides in (
        ((64, 64), (1, 64)), ((63, 33), (1, 63)), ((8, 4, 16, 64), (4096, 64, 256, 1)), ((64, 64), (192, 1)),
        ((8, 16, 4, 64), (4096, 64, 1024, 1)), ((8, 4, 64, 16), (4096, 1024, 1, 64)), ((8, 64, 128), (64, 1, 512)),
        ((8, 16, 64), (3072, 192, 1)), ((64, 64), (0, 0)), ((63, 33), (0, 0)), ((64, 64), (1, 0)), ((64, 64), (0, 1)),
    ):  # fmt: skip
        yield call("_in_layout", _of(dtype, *shape, strides=strides), Meta.of(shape, dtype).strides)
        yield call("clone", _of(dtype, *shape, strides=strides))


def _reductions(dtype: DType) -> Iterator[Call]:
    for shape, dims in _SUMMED:
        x = _of(dtype, *shape)
        for name, keeps in itertools.product(("sum", "mean"), (False, True)):
            yield call(name, x, dims if shape else None, keeps)
        yield call("norm", x, 2, dims if shape else None)
        if len(dims) == 1 and shape in _RARELY_REDUCED:
            for name in ("amax", "argmax", "logsumexp", "max.dim", "prod", "cumsum"):
                yield call(name, x, dims[0])
            for name in ("var", "std"):
                yield call(name, x, dims)
        if len(dims) == len(shape):
            for name in ("sum", "mean", "max", "min", "argmax", "std", "norm"):
                yield call(name, x)


def _rows(dtype: DType) -> Iterator[Call]:
    statistic = _of(dtypes.float32, 64, 1)
    for row in _ROWS:
        x, weight = _of(dtype, 64, row), _of(dtype, row)
        for name in ("softmax", "log_softmax"):
            yield call(name, x, -1)
            yield call(f"_{name}_backward_data", x, x, -1, dtype)
        for given in ((weight, weight), (None, None)):
            yield call("_layer_norm", x, (row,), *given, 1e-5)
        yield call("_layer_norm_backward", x, x, statistic, statistic, weight)
        yield call("_layer_norm_backward", x, x, statistic, statistic, None)
        yield call("_layer_norm_gradients", x, x, statistic, statistic, weight, (row,))
        yield call("_rms_norm", x, (row,), weight, 1e-6)
        yield call("_rms_norm_gradients", x, x, statistic, weight, (row,))
        labels = _of(dtypes.int64, 64)
        for smoothing in (0.0, 0.1):
            yield call("_cross_entropy", x, labels, None, "mean", -100, smoothing, None)
            yield call(
                "_cross_entropy_backward", _of(dtype), x, labels, None, _of(dtypes.float32, 64), _of(dtypes.float32),
                "mean", -100, smoothing,
            )  # fmt: skip


def _attentions(dtype: DType) -> Iterator[Call]:
    for width, is_causal in itertools.product((16, 32, 64, 80, 96, 128), (False, True)):
        x, statistic = _of(dtype, 4, 4, 64, width), _of(dtypes.float32, 4, 4, 64)
        for trains in (False, True):
            yield call("_attention", x, x, x, None, is_causal, 0.125, trains)
        yield call("_attention_backward", x, x, x, x, None, x, statistic, is_causal, 0.125)
    yield from few_rows(dtype, (16, 32, 64, 128, 256))


def _indices(dtype: DType) -> Iterator[Call]:
    for width in (64, 33, 768):
        x, ids = _of(dtype, 64, width), _of(dtypes.int64, 64)
        batch = _of(dtypes.int64, 8, 16)
        yield call("_embedding", batch, x, -1, False)
        yield call("embedding_dense_backward", _of(dtype, 8, 16, width), batch, 64, -1, False)
        for dim in (0, 1):
            positions = _of(dtypes.int64, x.shape[dim])
            yield call("index_select", x, dim, positions)
            yield call("index_add", x, dim, positions, x)
            places = _of(dtypes.int64, *x.shape)
            yield call("gather", x, dim, places)
            yield call("scatter", x, dim, places, x)
            yield call("scatter_add", x, dim, places, x)
        for accumulate in (False, True):
            yield call("index_put", x, (ids,), x, accumulate)
        yield call("index", x, (ids,))
        yield call("index", x, (ids, ids))
        yield call("sort", x)
        yield call("topk", x, 10)
    for dim, size in ((2, 15), (3, 13), (2, 32), (3, 32)):
        picture = _of(dtype, 8, 16, 15, 13) if size < 32 else _of(dtype, 8, 16, 32, 32)
        made = [*picture.shape]
        made[dim] = 2 * size
        yield call("index_select", picture, dim, _of(dtypes.int64, 2 * size))
        yield call("index_add", picture, dim, _of(dtypes.int64, 2 * size), _of(dtype, *made))


def _pictures(dtype: DType) -> Iterator[Call]:
    sliding = (3, 3), (1, 1), (1, 1), (1, 1)
    yield call("im2col", _of(dtype, 8, 3, 32, 32), *sliding)
    yield call("fold", _of(dtype, 8, 27, 1024), (32, 32), *sliding)
    for side, channels in ((32, 64), (15, 16), (7, 512)):
        shape = 8, channels, side, side
        wide, statistic = _of(dtypes.float32, channels), _of(dtypes.float32, channels)
        for strides in (None, (channels * side * side, 1, side * channels, channels)):
            x = _of(dtype, *shape, strides=strides)
            for weight in {wide, _of(dtype, channels)}:
                yield call("_batch_norm", x, weight, weight, 1e-5)
                yield call("_update_running_statistics_", weight, weight, statistic, statistic, 0.1, 0.1)
                yield call("_batch_norm_gradients", x, x, statistic, statistic, weight)
            weight = _of(dtype, channels)
            yield call("_group_norm", x, 8, weight, weight, 1e-5)
            groups = _of(dtypes.float32, 8, 8)
            yield call("_group_norm_gradients", x, x, groups, groups, weight, 8)
            for window, step, padding in ((2, 2, 0), (3, 2, 1)):
                half = (side + 2 * padding - window) // step + 1
                y = _of(
                    dtype,
                    8,
                    channels,
                    half,
                    half,
                    strides=strides and (channels * half * half, 1, half * channels, channels),
                )
                slide = (window, window), (step, step), (padding, padding)
                yield call("_max_pool", x, *slide, (1, 1), False)
                yield call(
                    "_max_pool_backward",
                    y,
                    _of(dtypes.int64, *y.shape, strides=y.strides),
                    (side, side),
                    *slide,
                    (1, 1),
                )
                yield call("_avg_pool", x, *slide, False, True, None)
                yield call("_avg_pool_backward", y, (side, side), *slide, False, True, None)


def _updates(dtype: DType) -> Iterator[Call]:
    """Optimizers, and what they do to many tensors at once."""
    number = _of(dtypes.float32)
    for count in CAPACITIES:
        some = (_of(dtype, 64, 64),) * count
        for name, advance in itertools.product(("_fused_adam_", "_fused_adamw_"), (False, True)):
            yield call(
                name, some, some, some, some, (), (number,) * count, lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01,
                eps=1e-8, amsgrad=False, maximize=False, advance=advance,
            )  # fmt: skip
        for momenta, momentum in (((), 0.0), (some, 0.9)):
            for is_first in (False, True):
                yield call(
                    "_fused_sgd_", some, some, momenta, weight_decay=1e-4, momentum=momentum, lr=0.1, dampening=0.0,
                    nesterov=False, maximize=False, is_first_step=is_first,
                )  # fmt: skip
        yield call("_total_norm", some)
        yield call("_clip_to_norm_", some, _of(dtype), 1.0)
        yield call("_foreach_apply_", some, "copy_", some, (), (), (0.0,) * count)


def _others(dtype: DType) -> Iterator[Call]:
    for shape in ((64, 64), (63, 33)):
        x = _of(dtype, *shape)
        for count, dim in itertools.product((2, 3), (0, 1)):
            yield call("cat", (x,) * count, dim)
        for name, given in {
            "normal_": (), "uniform_": (), "fill_": (1.0,), "zero_": (), "tril": (), "triu": (), "flip": ((1,),),
            "roll": (1, 0), "bernoulli": (), "multinomial": (1,), "any": (), "all": (),
        }.items():  # fmt: skip
            yield call(name, x, *given)
        yield call("normal_", x, 0.0, 0.02)
        yield call("uniform_", x, -0.1, 0.1)
    for name, given in {"ones": (), "zeros": (), "rand": (), "randn": (), "full": (2.0,)}.items():
        for size in ((), (64, 64)):
            yield call(name, size, *given, dtype=dtype, device=DEVICE)
    target, value = _of(dtypes.int64, 64), _of(dtype)
    yield call("_nll_loss_forward", _of(dtype, 64, 10), target, None, "mean", -100)
    for total in {value, _of(dtypes.float32)}:
        yield call("_nll_loss_backward", value, target, None, total, (64, 10), "mean", -100)


def _independent() -> Iterator[Call]:
    """What has nothing to do with types of floating point."""
    for dtype in (dtypes.int64, dtypes.bool_):
        for shape in ((64,), (64, 64), (63, 33), ()):
            x = _of(dtype, *shape)
            yield call("eq", x, x)
            yield call("ne", x, x)
            yield call("sum", x)
            yield call("clone", x)
            if dtype is dtypes.int64:
                for name in ("add", "sub", "mul", "lt", "ge", "eq", "add_", "gt", "le", "ne", "div"):
                    yield call(name, x, 1)
                for low, high in ((0, 9), (0, None), (None, 9)):
                    yield call("clamp", x, low, high)
                yield call("add", x, x)
                yield call("_to_copy", x, dtype=dtypes.bool_)
            else:
                for name in ("logical_and", "logical_or", "bitwise_and", "bitwise_or"):
                    yield call(name, x, x)
                for name in ("logical_not", "any", "all"):
                    yield call(name, x)
                yield call("_to_copy", x, dtype=dtypes.int64)
    tokens = _of(dtypes.int64, 8, 16)
    yield call("cat", (tokens, _of(dtypes.int64, 8, 1)), 1)
    yield call("arange", 64, dtype=dtypes.int64, device=DEVICE)
    yield call("randint.low", 0, 10, (8, 16), dtype=dtypes.int64, device=DEVICE)
    yield call("one_hot", tokens, 10)
    yield call("zeros", (), dtype=dtypes.int64, device=DEVICE)
    yield call("zero_", _of(dtypes.int64))
    yield call("tril", _of(dtypes.bool_, 64, 64))
