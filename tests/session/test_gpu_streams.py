"""Streams and events on a GPU: work that runs side by side, waits where it should, and memory that is not reused early.

A *long* piece of work is a chain of matrix products that takes about a second; it shows what does not wait for it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gpu

SIZE = 8192
STEPS = 40


@pytest.fixture
def matrix(cuda_tg: Any) -> Any:
    """What a chain multiplies by: powers of it stay as they are. The kernels of the tests are compiled by then."""
    found = cuda_tg.eye(SIZE, device="cuda")
    _ = (found @ found).sum(), found.diagonal().clone(), found * 3 + found, cuda_tg.zeros(4, device="cuda")
    _ = cuda_tg.ones(4, device="cuda") * 3 + 1, cuda_tg.tensor(np.ones(1 << 19, np.float32), device="cuda") + 1
    cuda_tg.cuda.synchronize()
    return found


def _chain(x: Any, matrix: Any, steps: int = STEPS) -> Any:
    """``x`` after many products with the identity."""
    for _ in range(steps):
        x = matrix @ x
    return x


def test_streams_run_side_by_side(cuda_tg: Any, matrix: Any) -> None:
    busy, free = cuda_tg.cuda.Stream(), cuda_tg.cuda.Stream()
    with busy:
        _chain(matrix, matrix)
        late = busy.record_event()
    with free:
        x = cuda_tg.ones(4, device="cuda") * 3
        early = free.record_event()
        np.testing.assert_array_equal(x.numpy(), np.full(4, 3, np.float32))
    early.synchronize()
    assert early.query()
    assert free.query()
    assert not late.query()
    assert not busy.query()
    assert cuda_tg.cuda.default_stream().query()
    late.synchronize()
    assert busy.query()


def test_uploads_run_beside_a_busy_default_stream(cuda_tg: Any, matrix: Any, rng: np.random.Generator) -> None:
    s = cuda_tg.cuda.Stream()
    data = rng.normal(size=(1 << 19,)).astype(np.float32)
    _chain(matrix, matrix)
    with s:
        found = (cuda_tg.tensor(data, device="cuda") + 1).numpy()
        assert not cuda_tg.cuda.default_stream().query()
    np.testing.assert_array_equal(found, data + 1)


@pytest.mark.parametrize("how", ["stream", "event", "read"])
def test_what_waits_sees_the_result(cuda_tg: Any, matrix: Any, how: str) -> None:
    producer, consumer = cuda_tg.cuda.Stream(), cuda_tg.cuda.Stream()
    for repeat in range(3):
        target = cuda_tg.zeros(SIZE, SIZE, device="cuda")
        cuda_tg.cuda.synchronize()
        with producer:
            target.copy_(_chain(matrix * (repeat + 2), matrix, 10))
            done = producer.record_event()
        if how == "stream":
            consumer.wait_stream(producer)
        elif how == "event":
            consumer.wait_event(done)
        with producer if how == "read" else consumer:
            diagonal = target.diagonal().clone().numpy()
        np.testing.assert_array_equal(diagonal, np.full(SIZE, repeat + 2, np.float32))
        cuda_tg.cuda.synchronize()


def test_what_does_not_wait_sees_what_was_there(cuda_tg: Any, matrix: Any) -> None:
    """The counterpart, without which the test before would show nothing."""
    producer, consumer = cuda_tg.cuda.Stream(), cuda_tg.cuda.Stream()
    for repeat in range(2):
        target = cuda_tg.zeros(SIZE, SIZE, device="cuda")
        cuda_tg.cuda.synchronize()
        with producer:
            target.copy_(_chain(matrix, matrix))
        with consumer:
            seen = target.diagonal().clone().numpy()
        if repeat:  # memory that is new may have waited for all streams
            assert not producer.query()
            np.testing.assert_array_equal(seen, np.zeros(SIZE, np.float32))
        cuda_tg.cuda.synchronize()


def test_events_tell_the_time_between_them(cuda_tg: Any, matrix: Any) -> None:
    first, middle, last = (cuda_tg.cuda.Event(enable_timing=True) for _ in range(3))
    begin = time.monotonic()
    first.record()
    _chain(matrix, matrix)
    middle.record()
    last.record()
    elapsed = first.elapsed_time(middle)
    wall = 1000 * (time.monotonic() - begin)
    assert 0.5 * wall < elapsed <= wall
    assert first.elapsed_time(last) == pytest.approx(elapsed, abs=5)
    assert last.elapsed_time(first) < 0


def test_memory_that_another_stream_uses_is_not_reused_early(cuda_tg: Any, matrix: Any) -> None:
    side = cuda_tg.cuda.Stream()
    for repeat in range(3):
        value = float(repeat + 1)
        used = cuda_tg.full((SIZE, SIZE), value, device="cuda")
        cuda_tg.cuda.synchronize()
        with side:
            delayed = _chain(matrix, matrix, 20)
            seen = used + 0 * delayed
        used.record_stream(side)
        del used
        overwritten = cuda_tg.full((SIZE, SIZE), -5.0, device="cuda")
        active, held = _bytes(cuda_tg)
        if repeat:  # memory that is new may have waited for all streams
            assert active - held >= 4 * SIZE * SIZE, "the block waits for the other stream"
        cuda_tg.cuda.current_stream().wait_stream(side)
        assert float(seen.min().item()) == float(seen.max().item()) == value
        del overwritten, delayed, seen


def _bytes(tg: Any) -> tuple[int, int]:
    stats = tg.cuda.memory_stats()
    return stats["active_bytes.all.current"], stats["allocated_bytes.all.current"]


def test_memory_of_one_stream_is_not_given_to_another(cuda_tg: Any) -> None:
    side = cuda_tg.cuda.Stream()
    first = cuda_tg.zeros(1 << 24, device="cuda")
    freed = _block(cuda_tg, first)
    del first
    with side:
        second = cuda_tg.zeros(1 << 24, device="cuda")
    assert _block(cuda_tg, second)[1] != freed[1]
    assert _block(cuda_tg, second)[0] != freed[0]
    third = cuda_tg.zeros(1 << 24, device="cuda")
    assert _block(cuda_tg, third) == freed, "on its own stream it is reused at once"


def _block(tg: Any, tensor: Any) -> tuple[int, int]:
    """Where a tensor lies, and the raw stream that it was allocated for."""
    session = tg._session.current.current_session()
    session.flush()
    block = session.transport._session.state.value(tensor._id).storage.block
    return block.pointer, block.stream


def test_gradients_of_passes_on_several_streams_are_right(cuda_tg: Any, matrix: Any, rng: np.random.Generator) -> None:
    """Long products before each step make every missing wait show."""
    x = rng.normal(size=(SIZE,)).astype(np.float32)
    weights = [cuda_tg.tensor(x, device="cuda", requires_grad=True) for _ in range(2)]
    streams = [cuda_tg.cuda.Stream() for _ in range(2)]
    for repeat in range(3):
        here = cuda_tg.cuda.current_stream()
        shared = weights[0] * weights[1]
        branches = []
        for number, stream in enumerate(streams):
            stream.wait_stream(here)
            with stream:
                branches.append(_chain(shared.unsqueeze(1).expand(SIZE, 64) * (number + 2), matrix, 4).sum(1))
        for stream in streams:
            here.wait_stream(stream)
        (branches[0] * branches[1]).sum().backward()
        del branches, shared
        s = x.astype(np.float64) ** 2
        wanted = 2 * s * 64 * 2 * 64 * 3 * x * (repeat + 1)
        for weight in weights:
            np.testing.assert_allclose(weight.grad.cpu().numpy(), wanted, rtol=2e-4)


def test_priorities_and_handles(cuda_tg: Any) -> None:
    low, high = cuda_tg.cuda.Stream(), cuda_tg.cuda.Stream(priority=-1)
    assert (low.priority, high.priority) == (0, -1)
    for s in [cuda_tg.cuda.Stream(priority=-n % 5) for n in range(200)]:
        with s:
            cuda_tg.ones(8, device="cuda")
    cuda_tg.cuda.synchronize()
    assert high.query()


def test_a_session_that_ends_in_the_middle_leaves_nothing(cuda_host: Any, cuda_device: str) -> None:
    import telegrad

    backend = cuda_host.backend(cuda_device)
    with telegrad.connect(in_process=cuda_host) as connection:
        session = connection.session.transport._session
        number = session.state.number
        big = telegrad.ones(4096, 4096, device="cuda")
        with telegrad.cuda.Stream():
            for _ in range(20):
                big = big @ big
            event = telegrad.cuda.Event()
            event.record()
            big.record_stream(telegrad.cuda.default_stream())
        telegrad.ones(1, device="cuda").item()
        del big
    assert backend.allocator.allocated_bytes(number) == 0
    assert not session.state.events


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_training_under_autocast_follows_pytorch(cuda_tg: Any, rng: np.random.Generator, name: str) -> None:
    """With a scaler whose first steps overflow, for float16."""
    import torch

    from tests.client.test_autocast import _network

    torch.manual_seed(0)
    theirs = _network(torch.nn).cuda()
    ours = _network(cuda_tg.nn).to("cuda")
    ours.load_state_dict({k: cuda_tg.tensor(v.cpu().numpy()).to("cuda") for k, v in theirs.state_dict().items()})
    x = rng.normal(size=(40, 12)).astype(np.float32)
    y = rng.integers(0, 5, 40)
    sides = []
    for t, model in ((cuda_tg, ours), (torch, theirs)):
        scaler = t.amp.GradScaler("cuda", init_scale=2.0**28, enabled=name == "float16")
        optimizer = t.optim.AdamW(model.parameters(), lr=1e-2)
        sides.append((t, model, optimizer, scaler, t.tensor(x).to("cuda"), t.tensor(y).to("cuda")))
    losses = []
    for _ in range(40):
        losses.append([_step(name, *side) for side in sides])
    assert losses[-1][0] < 0.7 * losses[0][0]
    for mine, reference in losses:
        assert abs(mine - reference) < 0.06 * losses[0][1], losses
    assert sides[0][3].get_scale() == sides[1][3].get_scale()


def _step(name: str, t: Any, model: Any, optimizer: Any, scaler: Any, x: Any, y: Any) -> float:
    optimizer.zero_grad()
    with t.autocast("cuda", dtype=getattr(t, name)):
        loss = t.nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return float(loss.item())
