"""CUDA graphs: what is captured is not seen to be done, and each replay does it again in the same memory.

Simulated GPUs replay operation by operation; where they pretend to capture, parts of a graph are launched as one. Real
ones capture. What is computed is compared with the same program without graphs.
"""

from __future__ import annotations

import functools
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.engine.device.current_device import device_count
from server.engine.graphs import capture
from server.worker.host import Host
from telegrad_protocol import messages, wire
from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    DeviceError,
    IndexOutOfRangeError,
    LimitExceededError,
    NotSupportedError,
    ShapeError,
)

from ..support.captures import Again, simulate_captures
from ..support.node import SimulatedGpu, SimulatedHost


class _NoState:
    """Generators have no memory on a simulated GPU: what draws from them cannot be captured there."""

    pointer = 0


@functools.cache
def _host(kind: str) -> Any:
    if kind == "real":
        return Host(["cuda:0"])
    if device_count():
        pytest.skip("a process does not have simulated and real GPUs; the real ones are tested")
    return SimulatedHost()


@pytest.fixture(params=["simulated", "capturing", pytest.param("real", marks=pytest.mark.gpu)])
def tg(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[Any]:
    """The client on a session with a GPU, which leaves no memory behind."""
    import telegrad

    if request.param == "capturing":
        simulate_captures(monkeypatch)
        monkeypatch.setattr(SimulatedGpu, "random_state", lambda self: _NoState())
    host = _host("real" if request.param == "real" else "simulated")
    for backend in host.backends.values():
        backend.allocator.empty_cache()  # what a simulated capture copies
    with telegrad.connect(in_process=host) as connection:
        telegrad.manual_seed(seed)
        number = next(n for n, s in host.sessions.items() if s is connection.session.transport._session)
        yield telegrad
    for device, backend in host.backends.items():
        assert backend.allocator.allocated_bytes(number) == 0, f"the session left memory behind on {device}"
        left = [pool.id for pool in backend.allocator.heap.private.values() if pool.owner == number and pool.uses]
        assert not left, f"the session left pools behind on {device}"


def _model(tg: Any, seed: int) -> tuple[Any, Any]:
    tg.manual_seed(seed)
    nn = tg.nn
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.GELU(), nn.Linear(16, 4)).cuda()
    return model, tg.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)


def _step(tg: Any, model: Any, optimizer: Any, x: Any, t: Any) -> Any:
    optimizer.zero_grad(set_to_none=True)
    loss = tg.nn.functional.cross_entropy(model(x), t)
    loss.backward()
    optimizer.step()
    return loss


def _same(model: Any, other: Any) -> bool:
    mine, theirs = model.state_dict(), other.state_dict()
    pairs = [(mine[name].numpy(force=True), theirs[name].numpy(force=True)) for name in mine]
    return all([np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs])


def test_outputs_and_their_views_are_written_anew_in_the_same_memory(tg: Any) -> None:
    static, other = tg.randn(6, 6, device="cuda"), tg.randn(6, device="cuda")
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g):
        product = (static @ static.T).relu()
        column = product[:, 1]
        folded = tg.cat([static * other, product]).sum(0)
        parts = folded.softmax(0), product.sort(1)[1], static.mean(), static.to(tg.float64).cumsum(0)
    late_view = product.T[2]
    places = [tensor.data_ptr() for tensor in (product, folded, *parts)]
    for _ in range(4):
        batch = tg.randn(6, 6, device="cuda")
        static.copy_(batch)
        other.mul_(1.5)
        g.replay()
        wanted = (batch @ batch.T).relu()
        results = [wanted, wanted[:, 1], wanted.T[2], tg.cat([batch * other, wanted]).sum(0)]
        results += [results[3].softmax(0), wanted.sort(1)[1], batch.mean(), batch.to(tg.float64).cumsum(0)]
        for tensor, result in zip((product, column, late_view, folded, *parts), results, strict=True):
            np.testing.assert_array_equal(tensor.numpy(force=True), result.numpy(force=True))
    assert places == [tensor.data_ptr() for tensor in (product, folded, *parts)]


def test_a_capture_changes_nothing_that_was_there(tg: Any) -> None:
    tg.manual_seed(4)
    x, counter, out = tg.arange(6.0, device="cuda"), tg.zeros(2, device="cuda"), tg.zeros(6, device="cuda")
    state = tg.cuda.get_rng_state().tolist()
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g):
        counter[1] += 1
        x.view(2, 3)[0].mul_(2)
        tg.sin(x, out=out)
        tg.randn(5, device="cuda")
    assert x.tolist() == [0, 1, 2, 3, 4, 5] and counter.tolist() == [0, 0] and out.tolist() == [0] * 6
    assert tg.cuda.get_rng_state().tolist() == state
    for _ in range(3):
        g.replay()
    assert counter.tolist() == [0, 3] and x.tolist() == [0, 8, 16, 3, 4, 5]
    np.testing.assert_array_equal(out.numpy(force=True), x.sin().numpy(force=True))
    assert tg.cuda.get_rng_state().tolist() != state, "a replay draws"


def test_fifty_whole_training_steps_are_equal_to_eager_ones_with_dropout(tg: Any, seed: int) -> None:
    data = [(tg.randn(4, 8), tg.randint(0, 4, (4,))) for _ in range(50)]
    eager, optimizer = _model(tg, seed)
    losses = [_step(tg, eager, optimizer, *batch) for batch in data]
    model, optimizer = _model(tg, seed)
    x, t = data[0][0].clone(), data[0][1].clone()
    side = tg.cuda.Stream()
    side.wait_stream(tg.cuda.current_stream())
    with tg.cuda.stream(side):
        found = [_step(tg, model, optimizer, *batch).clone() for batch in data[:3]]
    tg.cuda.current_stream().wait_stream(side)
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g, stream=side):
        loss = _step(tg, model, optimizer, x, t)
    gradient = model[0].weight.grad
    for batch in data[3:]:
        x.copy_(batch[0])
        t.copy_(batch[1])
        g.replay()
        found.append(loss.clone())
    assert [one.item() for one in found] == [one.item() for one in losses]
    assert _same(model, eager) and model[0].weight.grad is gradient
    np.testing.assert_array_equal(gradient.numpy(force=True), eager[0].weight.grad.numpy(force=True))


def test_dropout_differs_from_replay_to_replay_and_follows_the_seed(tg: Any) -> None:
    x = tg.ones(64, device="cuda")
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g):
        kept = tg.nn.functional.dropout(x, 0.5)
        noise = tg.rand(7, device="cuda")

    def replays() -> list[Any]:
        tg.manual_seed(11)
        drawn = []
        for _ in range(3):
            g.replay()
            drawn.append((kept.tolist(), noise.tolist()))
        return drawn

    first = replays()
    assert first[0] != first[1] != first[2] and first == replays()
    tg.manual_seed(11)
    for masks, numbers in first:
        assert tg.nn.functional.dropout(x, 0.5).tolist() == masks and tg.rand(7, device="cuda").tolist() == numbers


def test_a_generator_of_the_program_goes_on_with_each_replay(tg: Any) -> None:
    generator, twin = tg.Generator("cuda").manual_seed(5), tg.Generator("cuda").manual_seed(5)
    for one in (generator, twin):
        tg.rand(2, device="cuda", generator=one)
    g = tg.cuda.CUDAGraph()
    g.register_generator_state(generator)
    with tg.cuda.graph(g):
        drawn = tg.rand(3, device="cuda", generator=generator)
    for _ in range(3):
        g.replay()
        assert drawn.tolist() == tg.rand(3, device="cuda", generator=twin).tolist()


def test_mixed_precision_with_a_scaler(tg: Any) -> None:
    data = [tg.randn(4, 8) * (1e30 if number == 4 else 1) for number in range(8)]

    def step(model: Any, optimizer: Any, scaler: Any, x: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        with tg.autocast("cuda", dtype=tg.float16, cache_enabled=False):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    runs = []
    for replays in (False, True):
        model, optimizer = _model(tg, 6)
        scaler = tg.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=3)
        for x in data[:2]:
            step(model, optimizer, scaler, x)
        static, g = data[0].clone(), tg.cuda.CUDAGraph()
        if replays:
            with tg.cuda.graph(g):
                step(model, optimizer, scaler, static)
        for x in data[2:]:
            static.copy_(x)
            g.replay() if replays else step(model, optimizer, scaler, static)
        runs.append((model, scaler.get_scale()))
    assert runs[0][1] == runs[1][1] and _same(runs[0][0], runs[1][0])


def test_gradients_that_were_there_are_accumulated(tg: Any) -> None:
    w = tg.ones(3, device="cuda", requires_grad=True)
    x = tg.tensor([1.0, 2.0, 3.0], device="cuda")
    (w * x).sum().backward()
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g):
        (w * x).sum().backward()
    assert w.grad.tolist() == [1, 2, 3]
    for _ in range(2):
        g.replay()
    assert w.grad.tolist() == [3, 6, 9]
    x.mul_(10)
    g.replay()
    assert w.grad.tolist() == [13, 26, 39]


def test_graphs_share_a_pool_and_its_memory_comes_back(tg: Any) -> None:
    pool = tg.cuda.graph_pool_handle()
    x = tg.randn(1 << 19, device="cuda")
    tg.cuda.synchronize()
    before = tg.cuda.memory_allocated()
    first, second, apart = tg.cuda.CUDAGraph(), tg.cuda.CUDAGraph(), tg.cuda.CUDAGraph()
    with tg.cuda.graph(first, pool=pool):
        a = (x * 2).sin() + 1
    reserved = tg.cuda.memory_reserved()
    with tg.cuda.graph(second, pool=first.pool()):
        b = (a * 3).cos() - 1
    assert tg.cuda.memory_reserved() == reserved, "the second graph has the first one's temporaries"
    assert first.pool() == second.pool() == pool != tg.cuda.graph_pool_handle()
    with tg.cuda.graph(apart):
        c = x + 1
    assert apart.pool() != pool
    for _ in range(3):
        x.add_(1)
        for g in (first, second, apart):
            g.replay()
        wanted = (x * 2).sin() + 1
        assert a.tolist() == wanted.tolist() and c.tolist() == (x + 1).tolist()
        assert b.tolist() == ((wanted * 3).cos() - 1).tolist()
    del wanted, a, b, g
    first.reset()
    second.replay()
    del second, apart, c
    gc.collect()
    tg.cuda.synchronize()
    tg.cuda.empty_cache()
    assert tg.cuda.memory_allocated() == before
    with pytest.raises(CaptureError, match="without a preceding successful capture"):
        first.replay()
    with tg.cuda.graph(first, pool=pool):
        d = x * 5
    first.replay()
    assert d.tolist() == (x * 5).tolist()


def test_a_pool_of_the_program_may_be_a_graphs(tg: Any) -> None:
    pool, x = tg.cuda.MemPool(), tg.ones(4, device="cuda")
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g, pool=pool.id):
        y = x + 1
    assert g.pool() == pool.id and pool.use_count() == 2
    g.replay()
    assert y.tolist() == [2] * 4
    g.reset()
    assert pool.use_count() == 1
    pool.release()
    with pytest.raises(ArgumentError, match="there is no pool"), tg.cuda.graph(tg.cuda.CUDAGraph(), pool=pool.id):
        pass
    with pytest.raises(ArgumentTypeError, match="a pool is what"), tg.cuda.graph(tg.cuda.CUDAGraph(), pool="mine"):
        pass


READS: dict[str, Callable[[Any, Any], Any]] = {
    "item": lambda tg, x: x.sum().item(), "tolist": lambda tg, x: x.tolist(), "print": lambda tg, x: str(x),
    "if": lambda tg, x: bool(x[0] > 0), "cpu": lambda tg, x: (x.cpu(), tg.cuda.memory_allocated()),
    "nonzero": lambda tg, x: x.nonzero(), "mask": lambda tg, x: x[x > 0],
    "synchronize": lambda tg, x: tg.cuda.synchronize(), "stream": lambda tg, x: tg.cuda.current_stream().synchronize(),
    "event": lambda tg, x: tg.cuda.current_stream().record_event().query(), "seed": lambda tg, x: tg.manual_seed(1),
    "rng": lambda tg, x: tg.cuda.get_rng_state(), "capture": lambda tg, x: tg.cuda.CUDAGraph().capture_begin(),
}  # fmt: skip


def test_what_is_not_permitted_ends_the_capture_cleanly(tg: Any) -> None:
    for name, read in READS.items():
        x = tg.arange(4.0, device="cuda")
        g = tg.cuda.CUDAGraph()
        with pytest.raises(tg.AcceleratorError, match="operation not permitted when stream is capturing"):  # noqa: SIM117
            with tg.cuda.graph(g):
                assert tg.cuda.is_current_stream_capturing()
                x.add_(1)
                read(tg, x)
        assert not tg.cuda.is_current_stream_capturing() and x.tolist() == [0, 1, 2, 3], name
        with pytest.raises(CaptureError, match="without a preceding successful capture"):
            g.replay()
        with tg.cuda.graph(g):
            y = x * 2
        g.replay()
        assert y.tolist() == [0, 2, 4, 6], name


def test_a_failure_in_a_capture_is_raised_at_its_end(tg: Any) -> None:
    x, places = tg.arange(4.0, device="cuda"), tg.tensor([1, 9], device="cuda")
    g = tg.cuda.CUDAGraph()
    with pytest.raises(IndexOutOfRangeError), tg.cuda.graph(g):
        x.add_(1)
        x[places]
    with pytest.raises(ShapeError), tg.cuda.graph(g):
        x @ tg.ones(3, device="cuda")
    assert x.tolist() == [0, 1, 2, 3]
    with pytest.raises(CaptureError, match="due to a previous error"):
        g.capture_begin()
        with pytest.raises(CaptureError, match="read: operation not permitted"):
            x.tolist()
        g.capture_end()
    with pytest.raises(CaptureError, match="is not being captured"):
        g.capture_end()
    assert (x * 2).tolist() == [0, 2, 4, 6] and tg.cuda.memory_allocated() > 0


def test_states_of_a_graph_and_their_errors(tg: Any, tmp_path: Path) -> None:
    x, path = tg.ones(3, device="cuda"), tmp_path / "graph.dot"
    g = tg.cuda.CUDAGraph(keep_graph=True)
    for name in ("replay", "pool", "raw_cuda_graph", "instantiate"):
        with pytest.raises(CaptureError, match=f"{name}: called CUDAGraph.{name} without a preceding"):
            getattr(g, name)()
    g.enable_debug_mode()
    with pytest.raises(ArgumentError, match="capture_error_mode is one of"):
        g.capture_begin(capture_error_mode="strict")
    g.capture_begin(capture_error_mode="thread_local")
    y = x.sin() + 1
    g.capture_end()
    g.instantiate()
    g.replay()
    assert y.tolist() == (x.sin() + 1).tolist()
    g.debug_dump(str(path))
    assert path.read_text().startswith("digraph") and '"sin"' in path.read_text() and '"add"' in path.read_text()
    data = g.get_graph_data()
    assert [(node["kernel_name"], node["dependencies"]) for node in data["nodes"]] == [("sin", []), ("add", [0])]
    with pytest.raises(CaptureError, match="already owns a captured graph"):
        g.capture_begin()
    with pytest.raises(NotSupportedError, match="lives on the server"):
        g.raw_cuda_graph()
    plain = tg.cuda.CUDAGraph()
    with tg.cuda.graph(plain):
        x * 2
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        plain.debug_dump(str(tmp_path / "none.dot"))
    assert "DOT file is not dumped" in str(told[0].message) and not (tmp_path / "none.dot").exists()
    with pytest.raises(ArgumentTypeError, match="expected a CUDAGraph"):
        tg.cuda.graph("graph")
    accelerated = tg.accelerator.Graph(pool=tg.cuda.graph_pool_handle())
    with tg.Stream("cuda"), accelerated:
        z = x * 4
    accelerated.replay()
    assert z.tolist() == [4] * 3


def test_what_is_no_work_of_the_device_and_thread_is_not_captured(tg: Any) -> None:
    x, host = tg.ones(3, device="cuda"), tg.zeros(2, device="cpu")
    other, ran = tg.zeros(3, device="cuda"), []

    def beside() -> None:
        other.add_(7)
        made.append(tg.full((16,), 3.0, device="cuda"))
        ran.append((other.tolist(), tg.cuda.is_current_stream_capturing()))

    g, made = tg.cuda.CUDAGraph(), []
    with tg.cuda.graph(g):
        temporary = (tg.full((16,), 1.0, device="cuda") + 1).sum()
        del temporary
        host.add_(1)
        assert host.tolist() == [1, 1], "the host computes at once"
        y = x * host[0] + tg.tensor([1.0, 2.0, 3.0], device="cuda")
        z = tg.tensor(5.0, device="cuda").add_(x.sum())
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
    assert ran == [([7] * 3, False)]
    for _ in range(2):
        host.add_(1)
        g.replay()
        assert y.tolist() == [2, 3, 4] and z.item() == 8, "numbers of the host are as they were"
    assert other.tolist() == [7] * 3 and made[0].tolist() == [3] * 16, "a replay writes to no memory of theirs"


def test_inputs_that_the_program_drops_stay_as_long_as_the_graph(tg: Any) -> None:
    x = tg.arange(5.0, device="cuda")
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g):
        y = x * 2
    del x
    filler = [tg.full((5,), 9.0, device="cuda") for _ in range(4)]
    g.replay()
    assert y.tolist() == [0, 2, 4, 6, 8] and len(filler) == 4


def test_a_replay_is_one_short_message_and_leaves_saved_tensors_valid(tg: Any) -> None:
    x = tg.randn(4, 4, device="cuda", requires_grad=True)
    static = tg.ones(4, 4, device="cuda")
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g):
        static.mul_(2)
    loss = (x * static).sum()
    g.replay()
    loss.backward()
    assert x.grad.tolist() == [[2.0] * 4] * 4, "as in PyTorch, what is saved has the elements of the last replay"
    session = static._session
    round_trips = session.round_trips
    for _ in range(10):
        g.replay()
    assert session.round_trips == round_trips and static[0, 0].item() == 2**11
    assert len(wire.encode_batch([messages.ReplayGraph(1 << 40, 1 << 20)])) < 100


def test_a_checkpoint_recomputes_what_was_dropped(tg: Any) -> None:
    from telegrad.utils.checkpoint import checkpoint

    w = tg.ones(64, device="cuda", requires_grad=True)
    x = tg.ones(64, device="cuda")

    def block(given: Any) -> Any:
        return tg.nn.functional.dropout(given * x, 0.5)

    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g):
        out = checkpoint(block, w, use_reentrant=False)
        out.sum().backward()
    gradients = []
    for _ in range(3):
        g.replay()
        assert out.tolist() == w.grad.tolist()
        gradients.append(out.tolist())
    assert gradients[0] != gradients[1] != gradients[2]


def test_graphed_callables_train_as_modules_do(tg: Any) -> None:
    data = [tg.randn(4, 8, device="cuda") for _ in range(12)]

    def build() -> tuple[Any, Any, Any]:
        tg.manual_seed(9)
        first = tg.nn.Sequential(tg.nn.Linear(8, 16), tg.nn.Tanh()).cuda()
        second = tg.nn.Sequential(tg.nn.Linear(16, 4), tg.nn.GELU()).cuda()
        return first, second, tg.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1, momentum=0.9)

    eager, graphed = build(), build()
    sample = tg.randn(4, 8, device="cuda"), tg.randn(4, 16, device="cuda", requires_grad=True)
    same = tg.cuda.make_graphed_callables(graphed[:2], ((sample[0],), (sample[1],)))
    assert same[0] is graphed[0] and all(p.grad is None for p in graphed[0].parameters())
    for number, x in enumerate(data):
        losses = []
        for first, second, optimizer in (eager, graphed):
            if number % 2:
                optimizer.zero_grad(set_to_none=number % 4 == 1)  # gradients of two steps are accumulated
            loss = second(first(x)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == losses[1], number
    assert _same(eager[0], graphed[0]) and _same(eager[1], graphed[1])
    graphed[0].eval(), eager[0].eval()
    longer = tg.randn(7, 8, device="cuda")
    assert graphed[0](longer).tolist() == eager[0](longer).tolist(), "in another mode modules run as they are"


def test_graphed_functions_of_structures_and_their_errors(tg: Any) -> None:
    def function(pair: Any, scale: Any) -> dict[str, Any]:
        return {"sum": (pair[0] + pair[1]) * scale, "both": [pair[0].sin(), pair[1].detach() * 2]}

    sample = [tg.randn(3, device="cuda", requires_grad=True), tg.randn(3, device="cuda")]
    graphed = tg.cuda.make_graphed_callables(function, (sample, tg.ones(3, device="cuda")))
    for _ in range(3):
        given = [tg.randn(3, device="cuda", requires_grad=True) for _ in range(2)]
        twins = [tensor.detach().clone().requires_grad_() for tensor in given]
        scale = tg.randn(3, device="cuda")
        results = []
        for call, pair in ((graphed, given), (function, twins)):
            out = call(pair, scale)
            (out["sum"].sum() + out["both"][0].sum()).backward()
            results.append((out["sum"].tolist(), out["both"][1].tolist(), pair[0].grad.tolist()))
        assert results[0] == results[1]
    with pytest.raises(TypeError):
        graphed(given, scale=scale)
    with pytest.raises(ArgumentError, match="captured with 3 tensors, got 1"):
        graphed(scale)
    with pytest.raises(ArgumentTypeError, match="only tensors"):
        tg.cuda.make_graphed_callables(function, (sample, 2.0))
    hooked = tg.nn.Linear(2, 2).cuda()
    hooked.register_forward_hook(lambda *args: None)
    with pytest.raises(ArgumentError, match="must not have hooks"):
        tg.cuda.make_graphed_callables(hooked, (tg.ones(1, 2, device="cuda"),))


def test_graphs_of_the_device_are_launched_in_parts(
    tg: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.callspec.params["tg"] != "capturing":
        pytest.skip("only what simulates captures counts them")
    launched: list[int] = []
    launch = Again.launch
    monkeypatch.setattr(Again, "launch", lambda self: launched.append(1) or launch(self))
    x = tg.ones(8, device="cuda")
    whole, parts = tg.cuda.CUDAGraph(), tg.cuda.CUDAGraph()
    with tg.cuda.graph(whole):
        a = ((x * 2).sin() + 1).sum()
    with tg.cuda.graph(parts):
        b = ((x * 2).sin() + 1) * 3
        c = tg.rand(8, device="cuda")
        d = ((b + c).exp() * 2).cos()
    for g, launches in ((whole, 1), (parts, 2)):
        for _ in range(2):  # the first replay on a stream is made without the device's graphs
            g.replay()
        tg.cuda.synchronize()
        launched.clear()
        g.replay()
        tg.cuda.synchronize()
        assert len(launched) == launches
    assert a.item() == ((x * 2).sin() + 1).sum().item() and d.tolist() == ((b + c).exp() * 2).cos().tolist()


def test_a_session_that_ends_in_a_capture_leaves_nothing(tg: Any) -> None:
    x, other = tg.ones(3, device="cuda"), tg.cuda.CUDAGraph()
    with tg.cuda.graph(other):
        x * 3
    tg.cuda.CUDAGraph().capture_begin()
    x.mul_(2)
    x._session.close()
    assert not tg.cuda.is_current_stream_capturing()


def test_a_graph_has_so_many_operations_at_most(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MOST_OPERATIONS", 100)
    x = tg.ones(3, device="cuda")
    with pytest.raises(LimitExceededError, match="at most 100 operations"), tg.cuda.graph(tg.cuda.CUDAGraph()):
        for _ in range(101):
            x.add_(1)
    assert x.tolist() == [1] * 3


def test_compiled_functions_are_captured_and_see_what_replays_have_written(tg: Any) -> None:
    table = tg.arange(12.0, device="cuda").view(4, 3)

    @tg.compile
    def rows(picked: Any) -> Any:
        found = tg.nn.functional.embedding(picked, table) * 2
        return (found + 1).sum(1) - found.mean()

    picked, step = tg.tensor([0, 1], device="cuda"), tg.tensor([1, 2], device="cuda")
    advance, whole = tg.cuda.CUDAGraph(), tg.cuda.CUDAGraph()
    with tg.cuda.graph(advance):
        picked.add_(step)
    for _ in range(4):
        rows(picked)
    with tg.cuda.graph(whole):
        result = rows(picked)
    advance.replay()
    whole.replay()
    wanted = (table[1] * 2 + 1).sum() - (table[[1, 3]] * 2).mean()
    assert result[0].item() == rows(picked)[0].item() == wanted.item()
    advance.replay()
    with pytest.raises(IndexOutOfRangeError):  # [2, 5]: what a compiled function knew of its indices is not true now
        rows(picked).tolist()


def test_a_server_without_a_gpu_says_so() -> None:
    import telegrad

    with telegrad.connect(in_process=Host(["cpu"])), pytest.raises(DeviceError, match="GPU"):
        telegrad.cuda.CUDAGraph().capture_begin()
