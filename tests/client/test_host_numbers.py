"""Numbers on the CPU beside tensors of a GPU: every element-wise operation computes and differentiates with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad._ops.functions import function
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.ops import BY_INDEX, Op


def _elementwise() -> list[Op]:
    """Operations on two tensors or more that need nothing else."""
    return [
        op for op in BY_INDEX
        if op.base is op and op.promotion and not op.is_random and not op.public.startswith("_foreach_")
        and len(op.tensor_positions) > 1 and all(p.kind.holds_tensors for p in op.params if p.required)
    ]  # fmt: skip


def _results(node: Any, op: Op, number_at: int, place: str) -> Any:
    """The result and the gradients, with the operand of this number 0-d and on ``place``; or the type of the error."""
    operands = []
    for number in range(max(2, sum(p.required for p in op.params))):
        data, device = (0.5, place) if number == number_at else ([0.3, 0.6, 0.9], "cuda:1")
        operands.append(node.tensor(data, device=device, requires_grad=op.differentiable))
    try:
        result = function(op.public)(*operands)
        assert result.device == "cuda:1"
        if result.requires_grad:
            result.sum().backward()
            assert all(x.grad is None or x.grad.device == x.device for x in operands)
        tensors = (result, *[x.grad for x in operands])
        return [None if tensor is None else tensor.numpy(force=True) for tensor in tensors]
    except TelegradError as error:  # not defined for these types, or without a derivative
        return type(error)


@pytest.mark.parametrize("op", _elementwise(), ids=lambda op: op.name)
def test_a_number_on_the_host_is_computed_with_as_one_on_the_gpu(node: Any, op: Op) -> None:
    for number_at in range(max(2, sum(p.required for p in op.params))):
        expected, found = (_results(node, op, number_at, place) for place in ("cuda:1", "cpu"))
        if isinstance(expected, type):
            assert found is expected
            continue
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6, err_msg=f"operand {number_at}")
