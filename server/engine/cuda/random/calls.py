"""Calls that between them need every text of this family; ``make check-kernels`` compiles the texts."""

from __future__ import annotations

from collections.abc import Iterator

from server.engine.cuda.texts import Call, call, tensor
from telegrad_protocol.dtypes import DType


def check_calls(dtype: DType) -> Iterator[Call]:
    for x in (tensor(dtype, 64, 64), tensor(dtype, 61, 67, strides=(1, 61), offset=1)):
        yield call("uniform_", x)
        yield call("normal_", x)
        yield call("exponential_", x)
        yield call("random_", x)
        yield call("random_.to", x, 100)
        yield call("random_.range", x, -100, 100)
        yield call("random_.range", x, -(1 << 40), 1 << 40)
        yield call("bernoulli_", x, 0.5)
        yield call("bernoulli", x)
        yield call("bernoulli.p", x, 0.5)
        yield call("native_dropout", x, 0.1, True)
        yield call("randint_like", x, 100)
        yield call("rand_like", x)
        yield call("multinomial", x, 8)
    yield call("randn_like", x)
    yield call("normal.Tensor", x, x)
    yield call("normal.std", 0.0, x)
