"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType

_HALVES = (dtypes.float16, dtypes.bfloat16)


def check_calls(dtype: DType) -> Iterator[Call]:
    if dtype.is_floating_point:
        yield from _softmax(dtype)
        yield from _losses(dtype)
        yield from _layers(dtype)
        yield from _channels(dtype)


def _wide(dtype: DType) -> DType:
    """The type of statistics."""
    return dtypes.float32 if dtype in _HALVES else dtype


def _softmax(dtype: DType) -> Iterator[Call]:
    for x, dim in (
        (tensor(dtype, 64, 100), 1), (tensor(dtype, 64, 1000), 1), (tensor(dtype, 8, 70001), 1),
        (tensor(dtype, 300, 33), 0), (tensor(dtype, 9, 101, offset=1), 1),
    ):  # fmt: skip
        for name in ("softmax", "log_softmax"):
            yield call(name, x, dim)
            yield call(f"_{name}_backward_data", x, x, dim, dtype)
    yield call("softmax", tensor(dtype, 64, 100), 1, dtypes.float32)


def _losses(dtype: DType) -> Iterator[Call]:
    wide = _wide(dtype)
    yield call("_bce", tensor(dtype, 64, 10), tensor(dtype, 64, 10))
    for shape in ((64, 10), (64, 1000), (8, 50257), (4, 21, 9, 5), (17,)):
        x = tensor(dtype, *shape)
        target = tensor(dtypes.int64, *shape[:1], *shape[2:]) if len(shape) > 1 else tensor(dtypes.int64)
        for weight in (None, tensor(dtype, shape[1] if len(shape) > 1 else shape[0])):
            for reduction in ("mean", "sum", "none"):
                loss = tensor(dtype, *target.shape) if reduction == "none" else tensor(dtype)
                yield call("_nll_loss_forward", x, target, weight, reduction, -100)
                yield call("_nll_loss_backward", loss, target, weight, tensor(dtype), shape, reduction, -100)
                for smoothing in (0.0, 0.1):
                    sums = tensor(wide, *target.shape)
                    yield call("_cross_entropy", x, target, weight, reduction, -100, smoothing)
                    yield call(
                        "_cross_entropy_backward", loss, x, target, weight, sums, tensor(wide), reduction, -100,
                        smoothing,
                    )  # fmt: skip


def _layers(dtype: DType) -> Iterator[Call]:
    wide = _wide(dtype)
    for rows, length in ((64, 100), (64, 1024), (4096, 768), (8, 70000), (9, 101)):
        x, statistic = tensor(dtype, rows, length), tensor(wide, rows, 1)
        size = (length,)
        for weight in (None, tensor(dtype, length)):
            yield call("_layer_norm", x, size, weight, weight, 1e-5)
            yield call("_rms_norm", x, size, weight, 1e-5)
            yield call("_layer_norm_backward", x, x, statistic, statistic, weight)
            yield call("_layer_norm_gradients", x, x, statistic, statistic, weight, size)
            yield call("_rms_norm_gradients", x, x, statistic, weight, size)
        yield call("_layer_norm_weight_backward", x, x, statistic, statistic, size)


def _channels(dtype: DType) -> Iterator[Call]:
    """Batch and group normalization, channels before or after what they are computed over."""
    wide = _wide(dtype)
    images = (
        tensor(dtype, 8, 64, 14, 14),
        tensor(dtype, 8, 64, 14, 14, strides=(12544, 1, 896, 64)),
        tensor(dtype, 64, 100),
        tensor(dtype, 3, 6, 7),
    )
    for x in images:
        channels = x.shape[1]
        statistic = tensor(wide, channels)
        for weight in (None, tensor(dtype, channels)):
            yield call("_batch_norm", x, weight, weight, 1e-5)
            if weight is not None:
                yield call("_update_running_statistics_", weight, weight, statistic, statistic, 0.1, 0.1)
            yield call("_batch_norm_gradients", x, x, statistic, statistic, weight)
            groups = tensor(wide, x.shape[0], 2)
            yield call("_group_norm", x, 2, weight, weight, 1e-5)
            yield call("_group_norm_gradients", x, x, groups, groups, weight, 2)
