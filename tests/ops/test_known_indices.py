"""Indices on GPUs that the host knows: nothing is checked, nobody waits, and what is unknown is found as ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context
from telegrad_protocol.errors import IndexOutOfRangeError

from ..gpus import GPUS
from .adapters import EngineAdapter

pytestmark = pytest.mark.gpu
KNOWN: dict[str, Callable[[Any, Any], Any]] = {
    "places": lambda F, x: x.argmin(1),
    "sorted": lambda F, x: F.topk(x, 3, 0)[1].select(1, 0),
    "counted": lambda F, x: F.arange(6, device=x.device).add(4).remainder(10),
    "found": lambda F, x: F.searchsorted(F.sort(x.select(0, 0))[0], x.select(0, 1)).clamp(max=9),
    "parts": lambda F, x: F.topk(x.flatten(), 5, 0)[1].floor_divide(10),
}
TAKES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index_select": lambda F, x, index: F.index_select(x, 0, index),
    "index": lambda F, x, index: F.index(x, (index,)),
    "gather": lambda F, x, index: F.gather(x, 0, index.unsqueeze(1)),
    "index_add": lambda F, x, index: F.index_add(x, 0, index, F.index_select(x, 0, index)),
    "index_put": lambda F, x, index: F.index_put(x.clone(), (index,), x.select(0, 0)),
    "embedding": lambda F, x, index: F.embedding(index, x),
}


@pytest.mark.parametrize("device", GPUS)
@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("known", KNOWN)
def test_what_is_known_is_not_checked(device: str, known: str, take: str, seed: int) -> None:
    torch.manual_seed(seed)
    given, results = torch.randn(10, 10), []
    for place in ("cpu", device):
        engine = EngineAdapter(place)
        x = engine.tensor(given)
        index = KNOWN[known](engine.functional, x)
        result = TAKES[take](engine.functional, x, index)
        assert not context.current.checks.outstanding
        results.append(engine.numpy(result))
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.parametrize("device", GPUS)
@pytest.mark.parametrize("take", TAKES)
def test_what_is_not_known_is_found(device: str, take: str, seed: int) -> None:
    torch.manual_seed(seed)
    engine = EngineAdapter(device)
    x = engine.tensor(torch.randn(10, 10))
    index = x.argmax(1).add(7)
    with pytest.raises(IndexOutOfRangeError):
        TAKES[take](engine.functional, x, index.clamp(min=11))
        context.current.checks.raise_fault()
    assert engine.numpy(TAKES[take](engine.functional, x, index.clamp(max=9))).shape
