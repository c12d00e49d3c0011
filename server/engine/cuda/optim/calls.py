"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.foreach import EXPRESSIONS

_ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}


def check_calls(dtype: DType) -> Iterator[Call]:
    if dtype in (dtypes.float32, dtypes.bfloat16, dtypes.float64):
        yield from _steps((tensor(dtype, 64, 64),) * 3)  # few and small: one launch does it all
        yield from _steps((tensor(dtype, 1024, 1024),) * 40)
        yield from _lists(dtype)


def _steps(params: tuple[Meta, ...]) -> Iterator[Call]:
    steps, number = (tensor(dtypes.float32),) * len(params), tensor(dtypes.float32)
    for scale in (None, number):
        for momentum in (0.0, 0.9):
            for nesterov in (False, True)[: 2 if momentum else 1]:
                yield call(
                    "_fused_sgd_", params, params, params if momentum else (), weight_decay=0.1, momentum=momentum,
                    lr=0.1, dampening=0.0, nesterov=nesterov, maximize=False, is_first_step=False, grad_scale=scale,
                    found_inf=scale,
                )  # fmt: skip
        for amsgrad in (False, True):
            for name in ("_fused_adam_", "_fused_adamw_"):
                for advance in (False, True):
                    yield call(
                        name, params, params, params, params, params if amsgrad else (), steps, lr=0.1, **_ADAM,
                        amsgrad=amsgrad, maximize=False, grad_scale=scale, found_inf=scale, advance=advance,
                    )  # fmt: skip


def _lists(dtype: DType) -> Iterator[Call]:
    tensors, number = (tensor(dtype, 64, 64),) * 3, tensor(dtypes.float32)
    for expression, count in EXPRESSIONS.items():
        lists = [tensors if place < count else () for place in range(3)]
        yield call("_foreach_apply_", tensors, expression, *lists, (1.0,) * 3)
    yield call("_foreach_zero_", tensors)
    yield call("_foreach_clamp_", tensors, 0.0, 1.0)
    for order in (1.0, 2.0, 3.0, math.inf):
        yield call("_total_norm", tensors, order)
    yield call("_clip_to_norm_", tensors, tensor(dtype), 1.0)
    yield call("_amp_foreach_non_finite_check_and_unscale_", tensors, number, number)
    yield call("_amp_foreach_non_finite_check_and_unscale_", tensors, number)
    yield call("_amp_update_scale_", number, tensor(dtypes.int32), number, 2.0, 0.5, 100)
