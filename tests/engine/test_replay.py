"""Recorded backward passes: equal to the engine's own to the bit, in memory too, and used only where they fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from server.engine import context, keys
from server.engine import functional as F
from server.engine.backward import backward
from server.engine.operators import OPERATORS
from server.engine.replay import backward_program
from server.engine.replay.backward_program import Program
from server.engine.replay.backward_recording import RecordingTask
from server.replay_policy import BACKWARD_PROGRAMS
from server.worker.host import Host
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import CPU
from tests.engine.repeated_gradients import check_gradients_again, differentiable
from tests.ops.adapters import EngineAdapter
from tests.support.draws import drawn

pytestmark = pytest.mark.filterwarnings("ignore")
PASSES = 4


@pytest.fixture
def seed(seed: int) -> int:
    """The printed seed, which PyTorch draws from too."""
    torch.manual_seed(seed)
    return seed


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many passes were recorded and replayed."""
    passes = {"recorded": 0, "replayed": 0}
    record, run = RecordingTask.record, Program.run

    def recorded(self: Any, *args: Any) -> Any:
        passes["recorded"] += 1
        return record(self, *args)

    def replayed(self: Any, *args: Any) -> None:
        passes["replayed"] += 1
        run(self, *args)

    monkeypatch.setattr(RecordingTask, "record", recorded)
    monkeypatch.setattr(Program, "run", replayed)
    return passes


@pytest.mark.parametrize("info", drawn(differentiable(), 60))
def test_every_operation_gives_the_same_gradients_again(info: Any, adapter: EngineAdapter) -> None:
    check_gradients_again(info, adapter, PASSES)


def test_most_operations_can_be_repeated(adapter: EngineAdapter, counts: dict[str, int], seed: int) -> None:
    weight = torch.randn(4, 4)
    functions: list[Callable[[Any], Any]] = [
        F.exp, F.relu, lambda x: F.softmax(x, 1), lambda x: F.mul(x, x), lambda x: F.cat((x, F.sin(x)), 0),
        lambda x: F.matmul(x, F.t(x)), lambda x: F.index_select(x, 0, adapter.tensor(torch.tensor([0, 2, 2]))),
        lambda x: F.layer_norm(x, (4,)), lambda x: F.transpose(F.view(x, (2, 8)), 0, 1), lambda x: F.add(x, x),
    ]  # fmt: skip
    for function in functions:
        for _ in range(3):
            leaf = adapter.tensor(weight, True)
            backward([F.sum(function(leaf))], [None])
    assert counts["recorded"] == len(functions) and counts["replayed"] >= len(functions)


def test_passes_of_tenants_are_repeated(adapter: EngineAdapter, counts: dict[str, int], seed: int) -> None:
    context.current.domain = 5  # as of sessions that come over the network
    weight = torch.randn(4, 4)
    for _ in range(4):
        leaf = adapter.tensor(weight, True)
        backward([F.sum(F.exp(leaf))], [None])
    assert counts == {"recorded": 1, "replayed": 2}


def test_what_a_kernel_calls_is_no_step(
    adapter: EngineAdapter, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Kernels of GPUs sort, copy and convert by operations, on memory that no graph has saved."""
    leaf = adapter.tensor(torch.randn(4, 4), True)
    other = adapter.tensor(torch.randn(4, 4))
    kernel = OPERATORS["cos"].kernels[keys.CPU]
    plain, calls = kernel.function, []

    def cos(xp: Any, *args: Any, **options: Any) -> Any:
        calls.append(F.exp(other).alias())
        return plain(xp, *args, **options)

    monkeypatch.setattr(kernel, "function", cos)
    OPERATORS["cos"].clear_caches()
    try:
        for _ in range(3):
            leaf.autograd.grad = None
            backward([F.sum(F.sin(leaf))], [None])
            np.testing.assert_array_equal(leaf.autograd.grad.array, np.cos(leaf.array))
    finally:
        OPERATORS["cos"].clear_caches()
    assert counts == {"recorded": 1, "replayed": 1} and len(calls) == 3


# -- training

MODELS = ["linear", "convolution", "transformer", "shared", "in place"]


def _model(tg: Any, kind: str) -> tuple[Any, Any, Any]:
    nn = tg.nn
    x, y = tg.randn(8, 3, 8, 8), tg.randint(0, 5, (8,))
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5)), x, y
    if kind == "convolution":
        layers = [nn.Conv2d(3, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(96, 5)), x, y
    if kind == "transformer":
        layer = nn.TransformerEncoderLayer(24, 2, 32, dropout=0.0, batch_first=True)
        return nn.Sequential(layer, nn.Flatten(), nn.Linear(192, 5)), x.reshape(8, 8, 24), y

    if kind == "in place":

        class InPlace(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
                self.second, self.last = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 5)

            def forward(self, x: Any) -> Any:
                x = self.norm(self.first(x)).relu_()
                out = nn.functional.leaky_relu(self.second(x), 0.1, inplace=True)
                out += x
                out.mul_(out.mean((2, 3), keepdim=True)).sigmoid_()
                scale = out.detach().amax().add_(1)
                gathered = tg.zeros_like(out[:4]).index_add_(0, tg.arange(8) % 4, out).div_(scale)
                return self.last(gathered.mean((2, 3)).repeat(2, 1))

        return InPlace(), x, y

    class Shared(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(192, 192)
            self.last = nn.Linear(192, 5)

        def forward(self, x: Any) -> Any:
            x = x.flatten(1)
            parts = self.inner(x).relu().chunk(2, 1)
            return self.last(tg.cat([parts[1], parts[0]], 1) + self.inner(x) * 0.5)

    return Shared(), x, y


def train(kind: str, steps: int = 6, host: Host | None = None) -> tuple[list[float], list[dict[str, int]]]:
    """Losses of a small model, and what each step did to memory."""
    import telegrad as tg

    host = host or Host(["cpu"])
    allocator = host.backends[host.default_device].allocator
    losses, memory = [], []
    with tg.connect(in_process=host):
        tg.manual_seed(3)
        model, x, y = _model(tg, kind)
        optimizer = tg.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(steps):
            tg.cuda.synchronize()
            before = allocator.memory_stats()
            allocator.reset_peak()
            if step != 3:  # in one step gradients are added up
                optimizer.zero_grad()
            loss = tg.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            after = allocator.memory_stats()
            memory.append({
                "peak": after["requested_bytes.all.peak"] - before["requested_bytes.all.current"],
                "allocations": after["allocation.all.allocated"] - before["allocation.all.allocated"],
                "bytes": after["requested_bytes.all.allocated"] - before["requested_bytes.all.allocated"],
                "left": after["requested_bytes.all.current"] - before["requested_bytes.all.current"],
            })  # fmt: skip
    return losses, memory


@pytest.mark.parametrize("kind", MODELS)
def test_training_is_the_same_to_the_bit_and_byte(
    kind: str, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = train(kind)
    assert counts["replayed"] >= 3
    monkeypatch.setattr(backward_program, "BACKWARD_PROGRAMS", BACKWARD_PROGRAMS._replace(budget=0))
    assert replayed == train(kind)


def test_views_of_other_places_are_programs_of_one_tree(counts: dict[str, int]) -> None:
    import telegrad as tg

    with tg.connect(in_process=Host(["cpu"])):
        data = tg.randn(4, 8, 6)
        layer = tg.nn.Linear(6, 3)
        for step in range(16):
            layer.zero_grad()
            layer(data[step % 4]).pow(2).mean().backward()
        tg.cuda.synchronize()
        assert counts == {"recorded": 4, "replayed": 4}  # each place is recorded the third time
        grads = layer.weight.grad.numpy()
        layer.zero_grad()
        layer(data[3].clone()).pow(2).mean().backward()
        np.testing.assert_array_equal(layer.weight.grad.numpy(), grads)


def test_of_graphs_that_never_come_again_none_is_recorded(counts: dict[str, int]) -> None:
    import telegrad as tg

    def step(leaf: Any, number: int) -> None:
        y = leaf * 1.0
        for bit in range(6):
            y = y.sin() if number >> bit & 1 else y.cos()
        (y * 2.0).sum().backward()

    with tg.connect(in_process=Host(["cpu"])):
        leaf = tg.randn(4, requires_grad=True)
        for number in range(20):
            step(leaf, number)
        tg.cuda.synchronize()
        assert counts == {"recorded": 0, "replayed": 0}
        for number in (17, 50, 50, 50, 17, 17):  # the second one in a row is recorded, and the third one otherwise
            step(leaf, number)
        tg.cuda.synchronize()
        assert counts == {"recorded": 2, "replayed": 2}


# -- where passes differ


@pytest.fixture
def leaf(adapter: EngineAdapter, seed: int) -> Iterator[Any]:
    yield adapter.tensor(torch.randn(5, 4), True)


def _repeat(action: Callable[[], Any], times: int = 3) -> None:
    for _ in range(times):
        action()


def test_another_graph_behind_the_same_beginning_is_not_taken_for_it(adapter: EngineAdapter, leaf: Any) -> None:
    def step(inner: Callable[[Any], Any]) -> Any:
        leaf.autograd.grad = None
        backward([F.sum(inner(leaf))], [None])
        return adapter.numpy(leaf.autograd.grad)

    _repeat(lambda: step(F.exp))
    host = adapter.numpy(leaf).astype(np.float64)
    np.testing.assert_allclose(step(F.sin), np.cos(host), rtol=1e-5)
    np.testing.assert_allclose(step(lambda x: F.mul(x, 3.0)), np.full_like(host, 3), rtol=1e-6)
    np.testing.assert_allclose(step(lambda x: F.mul(x, 2.0)), np.full_like(host, 2), rtol=1e-6)
    np.testing.assert_allclose(step(F.exp), np.exp(host), rtol=1e-5)


def test_the_same_operations_between_other_nodes_are_another_graph(adapter: EngineAdapter, leaf: Any) -> None:
    def step(swapped: bool) -> Any:
        leaf.autograd.grad = None
        a, b = F.exp(leaf), F.sin(leaf)
        backward([F.sum(F.sub(b, a) if swapped else F.sub(a, b))], [None])
        return adapter.numpy(leaf.autograd.grad)

    _repeat(lambda: step(False), 4)
    host = adapter.numpy(leaf).astype(np.float64)
    for swapped in (True, False, True):
        expected = (np.exp(host) - np.cos(host)) * (-1 if swapped else 1)
        np.testing.assert_allclose(step(swapped), expected, rtol=1e-4, atol=1e-5)


def test_gradients_reach_their_leaves_where_one_was_replaced_and_the_graph_then_goes_another_way(
    adapter: EngineAdapter, leaf: Any
) -> None:
    def step(inner: Callable[[Any], Any]) -> None:
        weight.autograd.grad = bias.autograd.grad = None
        hidden = inner(leaf)
        losses.append(F.sum(F.layer_norm(hidden, (4,), weight, bias)))
        backward(losses[-1:], [None])
        host = adapter.numpy(hidden).astype(np.float64)
        normal = (host - host.mean(1, keepdims=True)) / host.std(1, keepdims=True)
        np.testing.assert_allclose(adapter.numpy(weight.autograd.grad), normal.sum(0), rtol=1e-2, atol=1e-2)
        np.testing.assert_array_equal(adapter.numpy(bias.autograd.grad), np.full(4, len(host)))

    losses: list[Any] = []  # which keep the nodes of the leaves that they were computed from
    weight, bias = (adapter.tensor(torch.ones(4), True) for _ in range(2))
    _repeat(lambda: step(F.exp))
    weight = adapter.tensor(torch.ones(4), True)  # gets its gradient before the other leaf from here on
    for inner in (F.exp, F.sin, F.sin, F.sin, F.exp):
        step(inner)


def test_a_saved_value_that_was_modified_is_an_error_each_time(adapter: EngineAdapter, leaf: Any) -> None:
    def step(spoils: bool) -> None:
        middle = F.exp(leaf)
        out = F.sum(F.mul(middle, middle))
        if spoils:
            F.zero_(middle.alias())
        backward([out], [None])

    _repeat(lambda: step(False), 4)
    for _ in range(2):
        with pytest.raises(AutogradError, match="modified by an inplace operation"):
            step(True)
    step(False)


def test_a_graph_that_was_freed_is_an_error_and_a_retained_one_is_none(adapter: EngineAdapter, leaf: Any) -> None:
    _repeat(lambda: backward([F.sum(F.exp(leaf))], [None]))
    out = F.sum(F.exp(leaf))
    backward([out], [None])
    with pytest.raises(AutogradError, match="backward through the graph a second time"):
        backward([out], [None])
    for _ in range(3):
        out = F.sum(F.exp(leaf))
        leaf.autograd.grad = None
        for _ in range(3):
            backward([out], [None], retain_graph=True)
        expected = 3 * np.exp(adapter.numpy(leaf).astype(np.float64))
        np.testing.assert_allclose(adapter.numpy(leaf.autograd.grad), expected, rtol=1e-5)


def test_retained_gradients_are_kept_each_time(adapter: EngineAdapter, leaf: Any, counts: dict[str, int]) -> None:
    from server.engine.autograd.gradients import retain_grad

    for wanted in (False, False, False, True, True, False):
        middle = F.exp(leaf)
        if wanted:
            retain_grad(middle)
        backward([F.sum(F.mul(middle, 2.0))], [None])
        assert (middle.autograd.grad is not None) == wanted
        if wanted:
            assert (adapter.numpy(middle.autograd.grad) == 2).all()
    assert counts["replayed"] == 2


def test_a_given_gradient_is_not_stolen(adapter: EngineAdapter, leaf: Any, counts: dict[str, int]) -> None:
    given = adapter.tensor(torch.ones(5, 4))
    for _ in range(4):
        leaf.autograd.grad = None
        backward([F.add(leaf, 1.0)], [given])
        F.mul_(leaf.autograd.grad, 5.0)
        assert (adapter.numpy(given) == 1).all()
    assert counts["replayed"] == 2


def test_what_fails_in_a_replay_leaves_the_next_pass_whole(
    adapter: EngineAdapter, leaf: Any, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def step() -> Any:
        leaf.autograd.grad = None
        backward([F.sum(F.exp(F.sin(leaf)))], [None])
        return adapter.numpy(leaf.autograd.grad)

    _repeat(step, 3)
    allocator = adapter.backends[CPU].allocator
    held = allocator.allocated_bytes()
    out = F.sum(F.exp(F.sin(leaf)))
    with monkeypatch.context() as patch:
        patch.setattr(adapter.backends[CPU], "in_allocator", False)
        calls = iter([True, False])

        def fails(*args: Any) -> Any:
            if not next(calls, False):
                raise MemoryError("no room")
            return allocate(*args)

        allocate = allocator.allocate
        patch.setattr(allocator, "allocate", fails)
        with pytest.raises(MemoryError, match="no room"):
            backward([out], [None])
    del out
    expected = step()
    leaf.autograd.grad = None
    assert allocator.allocated_bytes() <= held
    host = adapter.numpy(leaf).astype(np.float64)
    np.testing.assert_allclose(expected, np.exp(np.sin(host)) * np.cos(host), rtol=1e-4, atol=1e-6)
    assert counts["replayed"] == 3
