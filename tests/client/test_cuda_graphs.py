"""CUDA graphs: what is captured is not seen to be done, and each replay does it again in the same memory.

Simulated GPUs replay operation by operation; where they pretend to capture, parts of a graph are launched as one. Real
ones capture. What is computed is compared with the same program without graphs.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
)

from .graph_devices import are_same, model_of, step_of
from .graph_devices import tg as tg


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
    eager, optimizer = model_of(tg, seed)
    losses = [step_of(tg, eager, optimizer, *batch) for batch in data]
    model, optimizer = model_of(tg, seed)
    x, t = data[0][0].clone(), data[0][1].clone()
    side = tg.cuda.Stream()
    side.wait_stream(tg.cuda.current_stream())
    with tg.cuda.stream(side):
        found = [step_of(tg, model, optimizer, *batch).clone() for batch in data[:3]]
    tg.cuda.current_stream().wait_stream(side)
    g = tg.cuda.CUDAGraph()
    with tg.cuda.graph(g, stream=side):
        loss = step_of(tg, model, optimizer, x, t)
    gradient = model[0].weight.grad
    for batch in data[3:]:
        x.copy_(batch[0])
        t.copy_(batch[1])
        g.replay()
        found.append(loss.clone())
    assert [one.item() for one in found] == [one.item() for one in losses]
    assert are_same(model, eager) and model[0].weight.grad is gradient
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
        model, optimizer = model_of(tg, 6)
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
    assert runs[0][1] == runs[1][1] and are_same(runs[0][0], runs[1][0])


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
