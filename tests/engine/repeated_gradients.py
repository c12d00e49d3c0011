"""Every operation of PyTorch's database that has a derivative, differentiated again and again: always the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from server.engine.backward import backward
from tests.ops.adapters import EngineAdapter
from tests.ops.database import op_db
from tests.ops.known import composed, is_out_of_scope, is_random
from tests.ops.test_opinfo import WRONG_GRADIENTS, ours_of

SAMPLES = 3


def gradients_of(adapter: EngineAdapter, leaves: list[Any]) -> list[Any]:
    return [None if v.autograd.grad is None else adapter.numpy(v.autograd.grad) for v in leaves]


def assert_same(gradients: list[Any], expected: list[Any]) -> None:
    for mine, other in zip(gradients, expected, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            assert mine.dtype == other.dtype and mine.strides == other.strides
            np.testing.assert_array_equal(mine, other)


def differentiable() -> list[Any]:
    """PyTorch's samples of every operation that has a derivative here."""
    infos = [i for i in op_db if ours_of(i.name) and i.supports_autograd and i.supports_dtype(torch.float64, "cpu")]
    infos = [i for i in infos if composed(i, len) is len]  # the database composes the others of several operations
    chosen = [i for i in infos if not is_random(i.name) and i.name not in WRONG_GRADIENTS]
    return [pytest.param(i, id=f"{i.name}-{i.variant_test_name or 'plain'}") for i in chosen]


def _mine(adapter: EngineAdapter, item: Any, leaves: list[Any]) -> Any:
    if isinstance(item, torch.Tensor):
        value = adapter.tensor(item, item.requires_grad)
        leaves.extend([value] if item.requires_grad else [])
        return value
    if isinstance(item, list | tuple):
        return type(item)([_mine(adapter, element, leaves) for element in item])
    return adapter.convert(item)


def check_gradients_again(
    info: Any, adapter: EngineAdapter, passes: int, same: Callable[[list[Any], list[Any]], None] = assert_same,
    first: int = 0,
) -> None:  # fmt: skip
    """Make the same passes of samples; gradients must stay the same, and from the pass numbered ``first`` on memory."""
    torch.manual_seed(0)
    for sample in list(info.sample_inputs("cpu", torch.float64, requires_grad=True))[:SAMPLES]:
        given = (sample.input, *sample.args)
        if is_out_of_scope(info.name, given, sample.kwargs):
            continue
        allocator, results, held = adapter.backends[adapter.device].allocator, [], []
        cotangent: Any = None
        for _ in range(passes):
            leaves: list[Any] = []
            args = [_mine(adapter, a, leaves) for a in given]
            kwargs = {k: _mine(adapter, v, leaves) for k, v in sample.kwargs.items()}
            result = adapter.function(ours_of(info.name))(*args, **kwargs)
            outs = [v for v in (result if isinstance(result, tuple | list) else [result]) if adapter.is_tensor(v)]
            out = next((v for v in outs if adapter.requires_grad(v)), None)
            if out is None:
                break
            if cotangent is None:
                cotangent = torch.randn(out.meta.shape, dtype=torch.float64)
                cotangent = cotangent.to(torch.complex128) if out.meta.dtype.is_complex else cotangent
            backward([out], [adapter.tensor(cotangent)])
            results.append(gradients_of(adapter, leaves))
            held.append(allocator.allocated_bytes())
            del args, kwargs, result, outs, out, leaves
        for later in results[1:]:
            same(later, results[0])
        assert len(set(held[first:])) <= 1, "a pass leaves other memory behind than the one before"
