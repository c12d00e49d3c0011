"""What attention sends to a GPU's kernel for few rows is what this takes: asked without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from server.engine.cuda.attention import few_rows
from server.engine.cuda.runtime.launch import collecting
from server.engine.cuda.texts import DescribedDevice, tensor
from server.engine.operators import OPERATORS, Request
from server.engine.ops.layers.attention import suits_few_rows
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

TYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


def _operands(rng: np.random.Generator) -> tuple[Meta, Meta, Meta, Meta | None]:
    batch, shared, group, rows, width, depth = [int(rng.choice(sizes)) for sizes in _SIZES]
    columns, dtype = int(rng.integers(1, 3000)), TYPES[rng.integers(len(TYPES))]
    query = tensor(dtype, batch, shared * group, rows, width, offset=int(rng.integers(0, 3)))
    key, value = [tensor(dtype, batch, shared, columns, size) for size in (width, depth)]
    masks = [
        None, tensor(dtypes.bool_, columns), tensor(dtype, rows, columns, strides=(1, rows)),
        tensor(dtypes.bool_, batch, 1, 1, columns),
    ]  # fmt: skip
    return query, key, value, masks[rng.integers(len(masks))]


_SIZES = ((1, 3), (1, 2, 12), (1, 2, 4), (1, 2, 3, 5, 8, 16, 17), (1, 8, 33, 64, 80, 128, 256, 257), (8, 20, 64, 256))


def _launch(query: Meta, key: Meta, value: Meta, mask: Meta | None, trains: bool) -> Any:
    op = OPERATORS["_attention"].op
    args = (query, key, value, mask, False, 0.125, trains)
    device: Any = DescribedDevice()
    with collecting("sm_90"):
        return few_rows.forward(Request(op, device, args, op.infer(args), None))


def test_it_takes_what_is_sent_to_it_and_nothing_else(rng: np.random.Generator) -> None:
    taken = 0
    for _ in range(200):
        query, key, value, mask = _operands(rng)
        launch = _launch(query, key, value, mask, False)
        assert (launch is not None) == suits_few_rows(query, key, value), (query, key, value, mask)
        taken += launch is not None
    assert 20 < taken < 190


@pytest.mark.parametrize("rows", [1, 16])
def test_training_needs_the_sums_of_rows_which_it_does_not_keep(rows: int) -> None:
    query, key = tensor(dtypes.float32, 2, 4, rows, 64), tensor(dtypes.float32, 2, 4, 500, 64)
    assert _launch(query, key, key, None, False) is not None
    assert _launch(query, key, key, None, True) is None
