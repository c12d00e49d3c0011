"""Every operation of PyTorch's database is captured, and replays write what it computes to where its results are.

On a GPU the second replay captures, so that this holds each kernel's launch to what a graph can repeat.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from server.engine.graphs.capture import Capture
from server.engine.graphs.graph import CapturedGraph
from server.engine.value import memory_of
from telegrad_protocol.errors import CaptureError
from tests.gpus import ALL_DEVICES
from tests.ops.adapters import EngineAdapter
from tests.ops.database import op_db
from tests.ops.known import composed, is_out_of_scope, is_random
from tests.ops.test_opinfo import ours_of

pytestmark = pytest.mark.filterwarnings("ignore")
PORTIONS = 24
SAMPLES = 2


def _infos() -> list[Any]:
    """Operations with results that are known, and that the database gives whole calls of."""
    known = [i for i in op_db if ours_of(i.name) and not is_random(i.name) and composed(i, len) is len]
    return [i for i in known if i.supports_dtype(torch.float32, "cpu") and "empty" not in i.name]


def _given(adapter: EngineAdapter, item: Any, tensors: list[Any]) -> Any:
    if isinstance(item, torch.Tensor):
        tensors.append(adapter.tensor(item))
        return tensors[-1]
    if isinstance(item, list | tuple):
        return type(item)([_given(adapter, element, tensors) for element in item])
    return adapter.convert(item)


class _Call:
    """An operation on the tensors of a sample; ``noted`` is what a capture has left of it."""

    def __init__(self, adapter: EngineAdapter, info: Any, sample: Any) -> None:
        self.adapter = adapter
        self.tensors: list[Any] = []
        self.args = [_given(adapter, item, self.tensors) for item in (sample.input, *sample.args)]
        self.kwargs = {name: _given(adapter, item, self.tensors) for name, item in sample.kwargs.items()}
        self.function = adapter.function(ours_of(info.name))

    def results(self) -> list[Any]:
        """Call it; the tensors of the device among what it returns: what the host makes is in no graph of a GPU."""
        result, backend = self.function(*self.args, **self.kwargs), self.adapter.backends[self.adapter.device]
        returned = result if isinstance(result, tuple | list) else [result]
        return [value for value in returned if self.adapter.is_tensor(value) and value.backend is backend]

    def arrays(self, values: list[Any]) -> list[np.ndarray[Any, Any]]:
        """Copies of the elements."""
        return [self.adapter.numpy(value).copy() for value in values]

    def captured(self) -> tuple[CapturedGraph, list[Any]]:
        """Capture it; the graph, and its results."""
        backend, context = self.adapter.backends[self.adapter.device], self.adapter.context
        pool = backend.allocator.new_mem_pool(context.owner)
        capture = Capture(context, backend, pool, lambda: True)
        try:
            results = self.results()
        except BaseException:
            capture.end().close()
            raise
        return capture.end(), results


def _same(mine: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(mine, wanted, strict=True):
        if one.dtype.kind in "fc":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)  # GPUs may add in another order
        else:
            np.testing.assert_array_equal(one, other)


def _check(call: _Call) -> None:
    before = call.arrays(call.tensors)
    wanted = call.arrays(call.results())
    after = call.arrays(call.tensors)
    for tensor, elements in zip(call.tensors, before, strict=True):
        call.adapter.backends[call.adapter.device].fill_from_host(tensor, elements)
    graph, results = call.captured()
    _same(call.arrays(call.tensors), before)
    inputs = {memory_of(tensor.storage) for tensor in call.tensors}
    for _ in range(3):
        for tensor, elements in zip(call.tensors, before, strict=True):
            call.adapter.backends[call.adapter.device].fill_from_host(tensor, elements)
        for value in results:
            if memory_of(value.storage) not in inputs and value.meta.is_contiguous:
                value.zero_()
        graph.replay(None)
        _same(call.arrays(results), wanted)
        _same(call.arrays(call.tensors), after)
    graph.close()


@pytest.mark.parametrize("portion", [0, *[pytest.param(n, marks=pytest.mark.slow) for n in range(1, PORTIONS)]])
@pytest.mark.parametrize("device", ALL_DEVICES)
def test_replays_compute_what_the_operation_does(device: str, portion: int) -> None:
    adapter, checked = EngineAdapter(device), 0
    adapter.context.checks.covered = True
    for info in _infos()[portion::PORTIONS]:
        torch.manual_seed(0)
        for sample in list(info.sample_inputs("cpu", torch.float32))[:SAMPLES]:
            if is_out_of_scope(info.name, (sample.input, *sample.args), sample.kwargs):
                continue
            try:
                _check(_Call(adapter, info, sample))
                checked += 1
            except CaptureError as error:
                assert "not permitted" in str(error)
            except BaseException as error:
                error.add_note(f"{info.name} {info.variant_test_name} on {sample.input}")
                raise
    assert checked > 10
