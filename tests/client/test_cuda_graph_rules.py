"""What CUDA graphs refuse and keep: failures, states, other threads, bounds, and callables that are graphed."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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

from ..support.captures import Again
from .graph_devices import are_same
from .graph_devices import tg as tg

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
    with pytest.raises(CaptureError, match="due to a previous error"), tg.cuda.stream(tg.cuda.Stream()):
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
    with tg.cuda.stream(tg.cuda.Stream()):
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
    with pytest.raises(CaptureError, match="must be captured on a non-default stream"):
        tg.cuda.CUDAGraph().capture_begin()
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
    assert are_same(eager[0], graphed[0]) and are_same(eager[1], graphed[1])
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
    with tg.cuda.stream(tg.cuda.Stream()):
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
