"""CUDA graphs as published programs and PyTorch's own tests use them: streams, generators, optimizers and callables.

Each is compared with the same program without graphs, on the devices of ``graph_devices``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telegrad_protocol.errors import ArgumentError, CaptureError

from .graph_devices import tg as tg

CAPTURABLE: list[tuple[str, dict[str, Any]]] = [
    ("Adadelta", {}), ("Adamax", {}), ("Adamax", {"weight_decay": 0.1, "maximize": True}), ("ASGD", {"t0": 2.0}),
    ("Adam", {"amsgrad": True}), ("NAdam", {}), ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("RAdam", {}), ("RAdam", {"betas": (0.9, 0.99)}), ("RMSprop", {"centered": True, "momentum": 0.5}), ("Rprop", {}),
]  # fmt: skip
"""Optimizers that take ``capturable``; RAdam's rate becomes adaptive at the sixth step."""


class Training:
    """Two parameters whose squares an optimizer makes smaller."""

    def __init__(self, tg: Any, name: str, options: dict[str, Any], values: list[np.ndarray], lr: Any = 0.1) -> None:
        self.tg = tg
        self.params = [tg.tensor(value, device="cuda", requires_grad=True) for value in values]
        self.optimizer = getattr(tg.optim, name)(self.params, lr=lr, **options)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        sum([(p * p).sum() * (i + 1) for i, p in enumerate(self.params)]).backward()
        self.optimizer.step()

    def captured(self) -> Any:
        """Return a graph of one step, after one eager step on a side stream."""
        side, g = self.tg.cuda.Stream(), self.tg.cuda.CUDAGraph()
        side.wait_stream(self.tg.cuda.current_stream())
        with self.tg.cuda.stream(side):
            self.step()
        self.tg.cuda.current_stream().wait_stream(side)
        with self.tg.cuda.graph(g):
            self.step()
        return g

    def values(self) -> list[np.ndarray]:
        return [p.detach().cpu().numpy() for p in self.params]


def _values(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype("f") for shape in ((2, 3), (4,))]


@pytest.mark.parametrize(("name", "options"), CAPTURABLE)
def test_replayed_steps_count_and_correct_as_eager_ones(tg: Any, seed: int, name: str, options: dict[str, Any]) -> None:
    eager = Training(tg, name, options, _values(seed))
    graphed = Training(tg, name, {**options, "capturable": True}, _values(seed))
    g = graphed.captured()
    eager.step()
    for _ in range(9):
        g.replay()
        eager.step()
        for mine, theirs in zip(graphed.values(), eager.values(), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)
    assert graphed.optimizer.state[graphed.params[0]]["step"].item() == 10
    saved = graphed.optimizer.state_dict()
    assert {entry["step"].item() for entry in saved["state"].values()} == {10}


@pytest.mark.parametrize("name", ["Adam", "Adamax", "NAdam", "RAdam", "ASGD", "RMSprop", "Adadelta"])
def test_a_learning_rate_in_a_tensor_is_read_by_each_replay(tg: Any, seed: int, name: str) -> None:
    eager = Training(tg, name, {}, _values(seed))
    lr = tg.tensor(0.1, device="cuda")
    graphed = Training(tg, name, {"capturable": True}, _values(seed), lr)
    g = graphed.captured()
    eager.step()
    for rate in (0.1, 0.01, 0.2):
        eager.optimizer.param_groups[0]["lr"] = rate
        lr.fill_(rate)
        g.replay()
        eager.step()
        for mine, theirs in zip(graphed.values(), eager.values(), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "Rprop"])
def test_steps_that_would_count_once_are_refused_in_a_capture(tg: Any, seed: int, name: str) -> None:
    training = Training(tg, name, {}, _values(seed))
    training.step()
    told = f"capture of step.. for an instance of {name} but param_groups' capturable is False"
    with pytest.raises(CaptureError, match=told), tg.cuda.graph(tg.cuda.CUDAGraph()):
        training.step()
    plain = Training(tg, "SGD", {"momentum": 0.9}, _values(seed))
    plain.captured().replay()


def test_states_go_from_uncaptured_optimizers_to_captured_ones_and_back(tg: Any, seed: int) -> None:
    one, other = (Training(tg, "NAdam", {"capturable": flag}, _values(seed)) for flag in (False, True))
    for _ in range(2):
        one.step()
        other.step()
    for giver, taker, flag in ((one, other, True), (other, one, False)):
        saved = giver.optimizer.state_dict()
        saved["param_groups"][0]["capturable"] = flag
        taker.optimizer.load_state_dict(saved)
        giver.step()
        taker.step()
        for mine, theirs in zip(giver.values(), taker.values(), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)


def test_blocks_capture_on_a_side_stream_of_their_own(tg: Any) -> None:
    seen, x = [], tg.ones(3, device="cuda")
    for given in (None, None, tg.cuda.Stream()):
        g = tg.cuda.CUDAGraph()
        block = tg.cuda.graph(g, stream=given)
        with block:
            seen.append(tg.cuda.current_stream())
            assert seen[-1].is_capturing() and not tg.cuda.default_stream().is_capturing()
            y = x + 1
        g.replay()
        assert block.capture_stream == seen[-1] and y.tolist() == [2] * 3
    assert seen[0] == seen[1] != tg.cuda.default_stream() and seen[2] == given
    assert tg.cuda.graph.default_capture_stream == seen[0] and tg.cuda.current_stream() == tg.cuda.default_stream()
    with tg.cuda.device(1 if tg.cuda.device_count() > 1 else 0):
        with tg.cuda.graph(g2 := tg.cuda.CUDAGraph()):
            z = tg.ones(2, device="cuda") * 2
        g2.replay()
        assert z.tolist() == [2, 2] and z.device.index == tg.cuda.current_device()


def test_seeds_and_states_of_a_generator_hold_for_later_replays(tg: Any) -> None:
    generator, twin = tg.Generator("cuda").manual_seed(4), tg.Generator("cuda").manual_seed(4)
    g = tg.cuda.CUDAGraph()
    g.register_generator_state(generator)
    with tg.cuda.graph(g):
        drawn = tg.rand(4, device="cuda", generator=generator)

    def replayed() -> list[float]:
        g.replay()
        return list(drawn.tolist())

    def eager() -> list[float]:
        return list(tg.rand(4, device="cuda", generator=twin).tolist())

    start = generator.get_state()
    first = replayed()
    assert first == eager() and replayed() == eager() != first
    generator.set_state(start)
    assert replayed() == first and replayed() != first
    assert generator.manual_seed(9) is generator and generator.initial_seed() == 9
    twin.manual_seed(9)
    assert [replayed(), replayed()] == [eager(), eager()]
    shared = generator.graphsafe_get_state()
    assert tg.rand(4, device="cuda", generator=shared).tolist() == eager() and replayed() == eager()
    twin.manual_seed(11)
    generator.graphsafe_set_state(other := twin.clone_state())
    assert tg.rand(4, device="cuda", generator=generator).tolist() == eager()
    assert tg.rand(4, device="cuda", generator=other).tolist() == eager()


def test_subclasses_of_graphs_pass_keep_graph_on(tg: Any) -> None:
    class Own(tg.cuda.CUDAGraph):  # type: ignore[misc]
        def __new__(cls, keep_graph: bool = False) -> Any:
            return super().__new__(cls, keep_graph)

    g, x = Own(keep_graph=True), tg.ones(2, device="cuda")
    with tg.cuda.graph(g):
        y = x * 3
    g.instantiate()
    g.replay()
    assert y.tolist() == [3, 3]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_several_callables_share_a_pool_with_unused_inputs_and_autocast(tg: Any, seed: int, is_mixed: bool) -> None:
    nn, functional = tg.nn, tg.nn.functional

    class Named(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net, self.unused = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.1)), nn.Linear(2, 2)

        def forward(self, given: dict[str, Any]) -> Any:
            return self.net(given["x"])

    class Plain(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> dict[str, Any]:
            return {"output": x + tg.arange(x.size(0), device=x.device).view(-1, 1)}

    def build() -> tuple[Any, ...]:
        tg.manual_seed(seed % 1000)
        return Named().cuda(), nn.Linear(6, 3).cuda(), functional.relu, nn.MSELoss(), Plain().cuda()

    def mixed() -> Any:
        return tg.autocast("cuda", enabled=is_mixed, dtype=tg.bfloat16, cache_enabled=False)

    x, extra = tg.randn(4, 5, device="cuda"), tg.randn(4, 5, device="cuda", requires_grad=True)
    hidden, out = (tg.randn(4, size, device="cuda", requires_grad=True) for size in (6, 3))
    out = out.bfloat16() if is_mixed else out
    samples = ({"x": x, "extra": extra},), (hidden,), (out,), (out, tg.randn(4, 3, device="cuda")), (out,)
    eager, given = build(), build()
    with mixed():
        pool = tg.cuda.graph_pool_handle()
        graphed = tg.cuda.make_graphed_callables(given, samples, 2, allow_unused_input=True, pool=pool)
        with pytest.raises(RuntimeError, match="appears to not have been used"):
            tg.cuda.make_graphed_callables(build()[0], samples[0])
    batches = [(tg.randn(4, 5, device="cuda"), tg.randn(4, 3, device="cuda")) for _ in range(4)]
    losses: list[list[float]] = []
    for (first, second, relu, loss_of, plain), modules in ((graphed, given), (eager, eager)):
        tg.manual_seed(3)
        optimizer = tg.optim.SGD([*modules[0].parameters(), *modules[1].parameters()], lr=0.1)
        losses.append([])
        for batch, target in batches:
            optimizer.zero_grad(set_to_none=True)
            with mixed():
                loss = loss_of(plain(relu(second(first({"x": batch, "extra": extra}))))["output"], target)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == losses[1] and given[0].unused.weight.grad is None
    assert [p.tolist() for p in given[1].parameters()] == [p.tolist() for p in eager[1].parameters()]


def test_callables_refuse_what_pytorch_asserts_and_take_hooks_afterwards(tg: Any) -> None:
    x, make, told = tg.randn(2, 3, device="cuda"), tg.cuda.make_graphed_callables, []
    hooked, buffered = tg.nn.Linear(3, 3).cuda(), tg.nn.Linear(3, 3).cuda()
    hooked.register_forward_pre_hook(lambda *given: None)
    buffered.register_buffer("table", tg.ones(2, device="cuda", requires_grad=True))
    for module, sample in ((hooked, (x,)), (buffered, (x,)), (tg.nn.Linear(3, 3).cuda(), (x, 2.0))):
        with pytest.raises(AssertionError):
            make(module, sample)
    with tg.autocast("cuda"), pytest.raises(ArgumentError, match="does not support the autocast caching"):
        make(tg.nn.Linear(3, 3).cuda(), (x,))
    module = tg.nn.Linear(3, 2).cuda()
    graphed = make(module, (x,))
    module.register_forward_hook(lambda module, given, result: told.append("forward"))
    module.weight.register_hook(lambda gradient: told.append(tuple(gradient.shape)))
    module.weight.register_post_accumulate_grad_hook(lambda parameter: told.append("accumulated"))
    graphed(x).sum().backward()
    assert told == ["forward", (2, 3), "accumulated"]
