"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.ops import TABLE

from .expressions import EXPRESSIONS

_COMPUTED = (dtypes.float32, dtypes.bfloat16, dtypes.complex64, dtypes.int64, dtypes.bool_)
"""One type of each class, in which all expressions are compiled."""
_NUMBERS: dict[str, Any] = {"scalar": 2, "int": 2, "float": 0.5, "bool": True}
_VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "add": ({"alpha": 3},),
    "sub": ({"alpha": 3},),
    "rsub": ({"alpha": 3},),
    "addcmul": ({"value": 3},),
    "addcdiv": ({"value": 3},),
    "div.mode": ({"rounding_mode": "floor"}, {"rounding_mode": "trunc"}),
    "pow": ({"exponent": 3}, {"exponent": 0.5}, {"exponent": 2.5}),
    "clamp": ({"min": 0, "max": 1}, {"min": 0}, {"max": 1}),
    "logit": ({"eps": 0.1},),
    "round": ({"decimals": 2}, {"decimals": -2}),
    "isclose": ({"equal_nan": True},),
    "gelu": ({"approximate": "tanh"},),
    "_gelu_backward": ({"approximate": "tanh"},),
}
"""Attributes that choose another expression than their defaults do."""


def check_calls(dtype: DType) -> Iterator[Call]:
    if dtype in _COMPUTED:
        yield from _expressions(dtype)
    yield from _layouts(dtype)
    yield from _copies(dtype)
    yield from _fills(dtype)


def _expressions(dtype: DType) -> Iterator[Call]:
    """Every expression, on row-major operands of one type."""
    for name in EXPRESSIONS:
        operands: dict[str, Any] = {}
        for param in TABLE[name].params:
            kind = param.kind.name
            if kind.startswith("tensor"):
                is_condition = param.name in ("condition", "mask")
                operands[param.name] = tensor(dtypes.bool_ if is_condition else dtype, 64, 64)
            elif param.required:
                operands[param.name] = _NUMBERS.get(kind)
        for variant in ({}, *_VARIANTS.get(name, ())):
            yield Call(name, (), {**operands, **variant})


def _layouts(dtype: DType) -> Iterator[Call]:
    """An addition of operands that are broadcast, misaligned, transposed, or larger than 32-bit indices reach."""
    x = tensor(dtype, 64, 64)
    for other in (tensor(dtype, 64), tensor(dtype, 64, 1), tensor(dtype), tensor(dtype, 64, 64, strides=(1, 64))):
        yield call("add", x, other)
    yield call("add", tensor(dtype, 61, offset=1), tensor(dtype, 61, offset=1))
    large = tensor(dtype, 1 << 16, 1 << 16)
    yield call("add", large, tensor(dtype, 1 << 16))
    yield call("add", tensor(dtype, 5, 6, 7, strides=(84, 7, 1)), tensor(dtype, 5, 6, 7, strides=(1, 5, 30)))


def _copies(dtype: DType) -> Iterator[Call]:
    x = tensor(dtype, 64, 64)
    for other in dtypes.ALL:
        yield call("copy_", x, tensor(other, 64, 64))
    across = tensor(dtype, 3, 64, 64, strides=(4096, 1, 64))
    yield call("_in_layout", across, (4096, 64, 1))
    yield call("_in_layout", tensor(dtype, 61, 67, strides=(1, 61), offset=1), (67, 1))
    yield call("copy_", tensor(dtypes.float32, 64, 64), tensor(dtype, 64, 64, strides=(1, 64)))
    yield call("copy_", tensor(dtype, 1 << 16, 1 << 16), tensor(dtype, 1 << 16, 1 << 16, strides=(1, 1 << 16)))
    yield call("clone", x)
    yield call("_to_copy", x, dtype=dtypes.float64)
    yield call("cat", (x, x), 1)
    yield call("stack", (x, x), 0)
    yield call("repeat", x, (2, 3))
    yield call("flip", x, (0, 1))
    yield call("rot90", x)
    yield call("roll", x, (1, 2), (0, 1))
    for mode in ("reflect", "replicate", "circular"):
        yield call("_pad_border", x, 1, 2, 3, mode)
    yield call("constant_pad_nd", x, (1, 2, 3, 4), 1)
    yield call("repeat_interleave", x, 3, 1)
    yield call("select_scatter", x, tensor(dtype, 64), 0, 1)
    yield call("slice_scatter", x, tensor(dtype, 64, 16), 1, 8, 40, 2)
    yield call("diagonal_scatter", x, tensor(dtype, 63), 1)
    yield call("_scatter_strided", x, tensor(dtype, 5, 6), (5, 6), (64, 2), 3)
    yield call("diag_embed", x)
    if dtype is not dtypes.bool_:
        yield call("addr", x, tensor(dtype, 64), tensor(dtype, 64), beta=2, alpha=3)
        yield call("cross", tensor(dtype, 64, 3), tensor(dtype, 64, 3), 1)


def _fills(dtype: DType) -> Iterator[Call]:
    x = tensor(dtype, 64, 64)
    yield call("zero_", x)
    yield call("fill_", x, 1)
    yield call("fill_.Tensor", x, tensor(dtype))
    yield call("zeros_like", x)
    yield call("empty_like", x)
    yield call("arange", 9, dtype=dtype, device=x.device)
    yield call("arange.start", 1, 9, 2, dtype=dtype, device=x.device)
    yield call("linspace", 0.0, 1.0, 9, dtype=dtype, device=x.device)
    yield call("logspace", 0.0, 1.0, 9, 10.0, dtype=dtype, device=x.device)
    yield call("eye", 5, 7, dtype=dtype, device=x.device)
    for large in (x, tensor(dtype, 1 << 16, 1 << 16)):
        yield call("tril", large, 1)
        yield call("triu", large, 1)
