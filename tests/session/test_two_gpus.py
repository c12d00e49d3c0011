"""Two GPUs in one session: copies between them, their order, autograd across them, and what belongs to which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from telegrad_protocol.errors import IndexOutOfRangeError
from tests.gpus import needs_two

pytestmark = [pytest.mark.gpu, needs_two]

WAYS = [("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")]
LAYOUTS = {
    "row-major": lambda t: t, "transposed": lambda t: t.t(), "slice": lambda t: t[3:, 5:11],
    "strided": lambda t: t[::2, ::3], "expanded": lambda t: t[:, :1].expand(40, 7), "empty": lambda t: t[:0],
    "element": lambda t: t[2, 3], "offset": lambda t: t[7],
}  # fmt: skip
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"]


@pytest.fixture
def two(cuda_host: Any) -> Iterator[Any]:
    """The client on a session that has two GPUs, and leaves nothing on either."""
    import telegrad

    with telegrad.connect(in_process=cuda_host) as connection:
        yield telegrad
        number = next(n for n, s in cuda_host.sessions.items() if s is connection.session.transport._session)
    assert not any(backend.allocator.allocated_bytes(number) for backend in cuda_host.backends.values())


def _data(rng: np.random.Generator) -> Any:
    return rng.integers(-60, 60, (40, 30))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("origin", "target"), WAYS)
def test_copies_have_the_same_elements(two: Any, origin: str, target: str, dtype: str, layout: str, rng: Any) -> None:
    source = LAYOUTS[layout](two.tensor(_data(rng), device=origin).to(getattr(two, dtype)))
    moved = source.to(target)
    assert str(moved.device) == target and moved.dtype is source.dtype
    np.testing.assert_array_equal(moved.to("cpu").float().numpy(), source.to("cpu").float().numpy())


@pytest.mark.parametrize(("origin", "target"), WAYS)
@pytest.mark.parametrize(("before", "after"), [("float32", "float16"), ("int64", "float64"), ("float64", "int32")])
def test_copies_cast_on_the_way(two: Any, origin: str, target: str, before: str, after: str, rng: Any) -> None:
    source = two.tensor(_data(rng), device=origin).to(getattr(two, before))
    moved = source.t().to(target, getattr(two, after))
    np.testing.assert_array_equal(moved.double().numpy(), source.t().double().numpy())


@pytest.mark.parametrize(("origin", "target"), WAYS)
def test_copies_overwrite_parts_of_a_tensor(two: Any, origin: str, target: str, rng: Any) -> None:
    data = _data(rng).astype(np.float32)
    source, whole = two.tensor(data[:5, :3], device=origin), two.tensor(data, device=target)
    whole[::8, ::10].copy_(source)
    whole[1].copy_(two.tensor(7.0, device=origin).expand(30))
    expected = data.copy()
    expected[::8, ::10], expected[1] = data[:5, :3], 7
    np.testing.assert_array_equal(whole.numpy(), expected)


@pytest.mark.parametrize(("origin", "target"), WAYS)
def test_copies_are_packed_where_gpus_cannot_access_each_other(
    two: Any, cuda_host: Any, origin: str, target: str, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(cuda_host.backend(origin)), "can_access_peer", lambda self, peer: False)
    data = rng.integers(-60, 60, (41, 29)).astype(np.int16)
    source = two.tensor(data, device=origin)
    whole = two.zeros(58, 41, device=target)
    whole[::2].copy_(source.t())
    np.testing.assert_array_equal(whole[::2].numpy(), data.T)
    np.testing.assert_array_equal(source[::3, 1:].to(target, two.float64).numpy(), data[::3, 1:])
    assert whole[1::2].abs().sum().item() == 0


@pytest.mark.parametrize(("origin", "target"), WAYS)
def test_work_before_and_after_a_copy_keeps_its_order(two: Any, origin: str, target: str) -> None:
    """The source is long in the making and overwritten at once; so is the memory that the copy goes to."""
    two.cuda.synchronize()
    for step in range(20):
        source = two.full((2048, 2048), 1.0 / 2048, device=origin)
        for _ in range(8):
            source = source @ source * 2048 / 2048
        busy = two.full((2048, 2048), float(step), device=target)
        for _ in range(8):
            busy = busy * 1.0
        del busy
        moved = source.to(target)
        source.fill_(-1)
        kept = moved + step
        moved.fill_(-2)
        np.testing.assert_allclose(kept[::512, ::512].numpy(), 1.0 / 2048 + step, rtol=1e-4)
        assert source[0, 0].item() == -1 and moved[0, 0].item() == -2


def test_memory_belongs_to_the_device_that_was_asked(two: Any) -> None:
    before = [two.cuda.memory_allocated(k) for k in range(2)]
    kept = two.zeros(1 << 20, device="cuda:1")
    assert [two.cuda.memory_allocated(k) - before[k] for k in range(2)] == [0, 4 << 20]
    moved = kept.to("cuda:0")
    assert [two.cuda.memory_allocated(k) - before[k] for k in range(2)] == [4 << 20, 4 << 20]
    del kept, moved
    assert [two.cuda.memory_allocated(k) for k in range(2)] == before


def test_all_kinds_of_kernels_run_on_the_second_device_between_those_of_the_first(two: Any, rng: Any) -> None:
    data = rng.standard_normal((64, 64)).astype(np.float32)
    pair = [two.tensor(data, device=f"cuda:{k}") for k in range(2)]
    programs = [
        lambda t: t @ t, lambda t: t.sort(dim=1)[0], lambda t: t.softmax(1), lambda t: t.cumsum(0), lambda t: t.sum(1),
        lambda t: t[t > 0], lambda t: two.nn.functional.layer_norm(t, (64,)), lambda t: t.argmax(1), lambda t: t.std(0),
        lambda t: two.linalg.inv(t) if hasattr(two, "linalg") else t, lambda t: t.unique(), lambda t: t.T.contiguous(),
        lambda t: two.nn.functional.conv2d(t.view(1, 1, 64, 64), t[:9].view(64, 1, 3, 3)),
        lambda t: two.nn.functional.scaled_dot_product_attention(*[t.view(1, 4, 16, 64).half()] * 3),
    ]  # fmt: skip
    for _ in range(3):
        for program in programs:
            first, second = (program(t) for t in pair)
            np.testing.assert_array_equal(first.float().numpy(), second.float().numpy())


def test_a_pipeline_trains_as_on_one_device(two: Any, rng: Any) -> None:
    x, y = rng.standard_normal((32, 16)).astype(np.float32), rng.standard_normal((32, 4)).astype(np.float32)
    losses = {}
    for second in ("cuda:0", "cuda:1"):
        two.manual_seed(3)
        first = two.nn.Linear(16, 64).to("cuda:0")
        last = two.nn.Linear(64, 4).to(second)
        optimizers = [two.optim.Adam(part.parameters(), lr=1e-2) for part in (first, last)]
        inputs, targets = two.tensor(x, device="cuda:0"), two.tensor(y, device=second)
        history = []
        for _ in range(60):
            loss = (last(first(inputs).relu().to(second)) - targets).square().mean()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            history.append(loss)
        assert str(first.weight.grad.device) == "cuda:0" and str(last.weight.grad.device) == second
        losses[second] = [loss.item() for loss in history]
    assert losses["cuda:0"] == losses["cuda:1"] and losses["cuda:0"][-1] < losses["cuda:0"][0]


def test_an_index_out_of_range_on_the_second_device_is_told(two: Any) -> None:
    table = two.ones(3, 2, device="cuda:1")
    with pytest.raises(IndexOutOfRangeError):
        table.index_select(0, two.tensor([7], device="cuda:1")).tolist()
    assert two.ones(2, device="cuda:0").tolist() == [1, 1] and table.tolist() == [[1, 1]] * 3


def test_random_numbers_are_a_devices_own(two: Any) -> None:
    two.manual_seed(5)
    expected = two.rand(8, device="cuda:1").tolist()
    two.manual_seed(5)
    two.rand(100, device="cuda:0")
    assert two.rand(8, device="cuda:1").tolist() == expected


def test_a_stream_of_one_device_waits_for_an_event_of_the_other(two: Any) -> None:
    stream = two.cuda.Stream(device="cuda:1")
    for step in range(5):
        source = two.full((2048, 2048), 1.0, device="cuda:0")
        for _ in range(6):
            source = source @ source / 2048
        with two.cuda.stream(stream):
            moved = source.to("cuda:1") * step
        event = stream.record_event()
        two.cuda.current_stream("cuda:0").wait_event(event)
        back = moved.to("cuda:0")
        assert back[5, 7].item() == step


def test_devices_say_whether_they_can_access_each_other(cuda_host: Any) -> None:
    first, second = (cuda_host.backend(name) for name in ("cuda:0", "cuda:1"))
    assert first.can_access_peer(second.device) == second.can_access_peer(first.device)
    assert not first.can_access_peer(first.device)
