"""The current GPU, default devices, and what ``tg.cuda`` tells about each of two GPUs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DeviceError


def test_the_first_gpu_is_current_until_another_one_is_chosen(node: Any) -> None:
    cuda = node.cuda
    assert (cuda.is_available(), cuda.device_count(), cuda.current_device()) == (True, 2, 0)
    assert node.zeros(2).device == node.zeros(2, device="cuda").device == node.get_default_device() == "cuda:0"
    cuda.set_device("cuda:1")
    assert cuda.current_device() == 1
    cuda.set_device(-1)
    assert cuda.current_device() == 1, "a negative index changes nothing"
    for tensor in (
        node.zeros(2), node.ones(2, device="cuda"), node.tensor([1.0]), node.as_tensor([1.0], device="cuda"),
        node.randn(3), node.arange(3), node.from_numpy(np.ones(2)), node.zeros(2, device="cpu").cuda(),
        node.zeros(2, device="cuda:0").to("cuda"), node.zeros(2, device=0).to(device=node.device("cuda")),
        node.zeros(2, device="cpu").new_zeros(2, device="cuda"), node.nn.Linear(2, 2).weight,
        node.nn.Linear(2, 2, device="cpu").cuda().weight, node.nn.Linear(2, 2, device="cpu").to("cuda").bias,
        node.empty_like(node.zeros(2, device="cpu"), device="cuda"),
    ):  # fmt: skip
        assert tensor.device == "cuda:1"
    cuda.set_device(node.device("cuda:0"))
    assert cuda.current_device() == 0 and node.zeros(2).device == "cuda:0"


def test_a_named_device_wins_over_the_current_one(node: Any) -> None:
    x = node.zeros(2, device=0)
    with node.cuda.device(1):
        assert node.zeros(2, device="cuda:0").device == "cuda:0"
        assert (x.cuda(0) is x, x.to(0) is x, x.to("cuda:0") is x) == (True, True, True)
        assert x.new_zeros(2).device == node.zeros_like(x).device == (x + 1).device == "cuda:0"
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        assert node.tensor(node.zeros(2, device=1), device=0).device == "cuda:0"


def test_the_current_gpu_is_chosen_anew_at_every_call(node: Any) -> None:
    """Calls that are written the same way are planned once for each current GPU."""
    device, places = node.device("cuda"), []
    for index in (0, 1, 0, 1):
        with node.cuda.device(index):
            places.append([t.device.index for t in (node.zeros(2, device=device), node.zeros(2), node.rand(2))])
    assert places == [[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1]]


def test_blocks_nest_and_end_with_exceptions(node: Any) -> None:
    cuda = node.cuda
    with cuda.device(1):
        with pytest.raises(ZeroDivisionError), cuda.device(0):
            assert cuda.current_device() == 0
            _ = 1 / 0
        assert cuda.current_device() == 1
        for nothing in (None, -1):
            with cuda.device(nothing):
                assert cuda.current_device() == 1
        with cuda.device_of(node.zeros(2, device="cuda:0")):
            assert cuda.current_device() == 0
            with cuda.device_of(node.zeros(2, device="cpu")):
                assert cuda.current_device() == 0
        block = cuda.device(0)
        with block, cuda.device(1), block:
            assert (cuda.current_device(), block.idx) == (0, 0)
    assert cuda.current_device() == 0


def test_the_current_gpu_belongs_to_a_thread(node: Any) -> None:
    seen = []
    node.cuda.set_device(1)
    thread = threading.Thread(target=lambda: seen.append((node.cuda.current_device(), node.zeros(1).device.index)))
    thread.start()
    thread.join()
    assert seen == [(0, 0)] and node.cuda.current_device() == 1


def test_a_device_without_an_index_is_none_in_particular(node: Any) -> None:
    device = node.device("cuda")
    assert (device.type, device.index, str(device), repr(device)) == ("cuda", None, "cuda", "device(type='cuda')")
    assert device != node.device("cuda:0") and node.device("cuda", 1) is node.device(1) is node.device("cuda:1")
    assert node.device(type="cuda", index=1) is node.device(1)
    with pytest.raises(ArgumentTypeError, match="index of a GPU"):
        node.device(1.5)


def test_new_tensors_are_made_on_the_device_of_a_block(node: Any) -> None:
    with node.device("cuda:1") as device:
        assert device == "cuda:1"
        assert node.zeros(2).device == node.tensor([1.0]).device == node.nn.Linear(1, 1).weight.device == "cuda:1"
        assert node.zeros(2, device="cuda").device == "cuda:0", "the current GPU stays what it was"
        with node.device("cpu"), device, node.device("cuda"):
            assert node.rand(2).device == node.get_default_device() == "cuda:0"
        assert node.zeros(2).device == "cuda:1"
        with pytest.raises(ZeroDivisionError), node.device("cpu"):
            _ = 1 / 0
        assert node.zeros(2).device == "cuda:1"
    assert node.zeros(2).device == "cuda:0"
    with pytest.raises(DeviceError, match=r"device: device cuda:5 is not there"), node.device("cuda:5"):
        pass


def test_the_default_device_may_be_the_current_gpu_another_one_or_the_cpu(node: Any) -> None:
    for default, places in (("cuda:1", (1, 1)), ("cpu", (None, None)), ("cuda", (0, 1)), (None, (0, 1)), (1, (1, 1))):
        node.set_default_device(default)
        first = node.zeros(2).device.index
        with node.cuda.device(1):
            assert (first, node.zeros(2).device.index) == places, default
            assert node.get_default_device().index == places[1]
    node.set_default_device("cpu")
    assert node.cuda.current_device() == 0 and node.zeros(1, device="cuda").device == "cuda:0"
    with node.device("cuda:1"):
        assert node.zeros(2).device == "cuda:1"


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ("tg.cuda.set_device(2)", DeviceError, "set_device: device cuda:2 is not there; the server has cuda:0, cuda:1"),
        ("tg.cuda.device('cpu')", DeviceError, "device: expected a GPU, not cpu"),
        ("tg.cuda.set_device(None)", ArgumentTypeError, "not None"),
        ("tg.cuda.set_device('gpu')", ArgumentError, "Expected one of cpu, cuda, xpu, xla, mps, meta, hpu, mtia"),
        ("tg.zeros(1, device='cuda:7')", DeviceError, "zeros: device cuda:7 is not there"),
        ("tg.zeros(1).cuda(2)", DeviceError, "to: device cuda:2 is not there"),
        ("tg.cuda.memory_allocated(2)", DeviceError, "device cuda:2 is not there"),
        ("tg.cuda.Stream(device='cpu')", DeviceError, "Stream: expected a GPU, not cpu"),
        ("tg.cuda.can_device_access_peer(0, 'cpu')", DeviceError, "can_device_access_peer: expected a GPU"),
    ],
)
def test_what_is_not_there_is_refused(node: Any, program: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        eval(program, {"tg": node})  # noqa: S307 - the test's own programs
    assert node.cuda.current_device() == 0


def test_a_current_gpu_that_another_server_lacks_is_named_with_the_remedy(node: Any, host: Any) -> None:
    node.cuda.set_device(1)
    with node.connect(in_process=host):
        assert node.zeros(1).device == "cpu"
        with pytest.raises(DeviceError, match=r"cuda:1 is not there; .* choose another current GPU by cuda.set_device"):
            node.zeros(1, device="cuda")
    assert node.zeros(1).device == "cuda:1"


def test_without_a_gpu_there_is_no_current_one(tg: Any) -> None:
    assert (tg.cuda.is_available(), tg.cuda.device_count()) == (False, 0)
    for ask in (tg.cuda.current_device, lambda: tg.cuda.set_device(0), lambda: tg.cuda.device(0)):
        with pytest.raises(DeviceError, match="no GPU"):
            ask()
    with tg.cuda.device(None), tg.cuda.device_of(tg.zeros(1)), tg.device("cpu"):
        assert tg.zeros(1).device == "cpu"
    assert tg.cuda.memory_allocated() == tg.cuda.memory_allocated("cpu")


def test_properties_are_those_of_the_device(node: Any) -> None:
    properties = node.cuda.get_device_properties(1)
    assert properties.name == properties["name"] == node.cuda.get_device_name("cuda:1")
    assert (properties.major, properties.minor) == node.cuda.get_device_capability(1)
    assert properties.total_memory > 1 << 20 and properties.multi_processor_count > 0
    assert node.cuda.is_bf16_supported() and node.cuda.is_initialized()
    assert properties.name in repr(properties) and f"major={properties.major}" in repr(properties)
    with pytest.raises(AttributeError, match="no_such_property"):
        _ = properties.no_such_property
    if torch.cuda.device_count() > 1:
        theirs = torch.cuda.get_device_properties(1)
        for name in ("name", "total_memory", "major", "minor", "warp_size", "L2_cache_size", "multi_processor_count"):
            assert getattr(properties, name) == getattr(theirs, name), name
    free, total = node.cuda.mem_get_info(1)
    assert 0 < free <= total
    with node.cuda.device(1):
        assert node.cuda.get_device_capability() == node.cuda.get_device_capability(1)


def test_no_gpu_is_its_own_peer(node: Any) -> None:
    reach = [[node.cuda.can_device_access_peer(i, j) for j in (0, 1)] for i in (0, 1)]
    assert reach[0][0] is reach[1][1] is False
    assert reach[0][1] == reach[1][0], "the GPUs of a node reach each other, or none does"


def test_memory_is_counted_by_device(node: Any) -> None:
    cuda = node.cuda
    before = [cuda.memory_allocated(i) for i in (0, 1)]
    x = node.zeros(1 << 16, device="cuda:1")
    assert [cuda.memory_allocated(i) - before[i] for i in (0, 1)] == [0, x.nbytes]
    with cuda.device(1):
        assert cuda.memory_allocated() == before[1] + x.nbytes == cuda.memory_stats()["allocated_bytes.all.current"]
    peak = cuda.max_memory_allocated(1)
    del x
    assert cuda.memory_allocated("cuda:1") == before[1] and cuda.max_memory_allocated(1) == peak > before[1]
    cuda.reset_peak_memory_stats(0)
    assert cuda.max_memory_allocated(1) == peak
    cuda.reset_peak_memory_stats(1)
    assert cuda.max_memory_allocated(1) == before[1]
    assert "cuda:1" in cuda.memory_summary(1) or cuda.memory_summary(1) != ""
    cuda.empty_cache()
    cuda.synchronize(1)


def test_a_snapshot_has_the_segments_of_all_gpus(node: Any) -> None:
    kept = [node.zeros(1 << 16, device=index) for index in (0, 1)]
    segments = node.cuda.memory_snapshot()
    assert {segment["device"] for segment in segments} >= {0, 1}
    assert len(node.cuda.memory._snapshot()["device_traces"]) >= 2
    del kept


def test_a_pool_is_one_of_its_device(node: Any) -> None:
    with node.cuda.device(1):
        pool = node.cuda.MemPool()
    with node.cuda.use_mem_pool(pool):
        x = node.zeros(1 << 16, device="cuda:1")
    assert pool.snapshot() and x.device == "cuda:1"
    with pytest.raises(ArgumentError, match="one of cuda:1, not of cuda:0"), node.cuda.use_mem_pool(pool, 0):
        pass
    del x
    pool.release()


def test_generators_are_seeded_one_by_one_or_together(node: Any) -> None:
    def draw(index: int) -> list[float]:
        return node.rand(4, device=index).tolist()  # type: ignore[no-any-return]

    node.cuda.manual_seed_all(7)
    first = draw(0)
    assert draw(1) == first, "equal seeds give equal numbers on all GPUs"
    node.cuda.manual_seed(7)
    assert draw(0) == first != draw(1)
    with node.cuda.device(1):
        node.cuda.manual_seed(7)
        assert node.cuda.initial_seed() == 7
    assert draw(1) == first != draw(0)
    states = node.cuda.get_rng_state_all()
    assert len(states) == 2 and states[1].tolist() == node.cuda.get_rng_state(1).tolist()
    expected = [draw(0), draw(1)]
    node.cuda.set_rng_state_all(states)
    assert [draw(0), draw(1)] == expected
    node.cuda.set_rng_state(states[0], "cuda:1")
    node.cuda.set_rng_state(states[0])
    assert draw(0) == draw(1) == expected[0]
    node.cuda.seed_all()
    assert draw(0) == draw(1) != expected[0]
    node.manual_seed(7)
    assert draw(0) == draw(1) == first


def test_a_stream_brings_its_gpu(node: Any) -> None:
    cuda = node.cuda
    stream = cuda.Stream(device=1)
    assert stream.device == "cuda:1" and cuda.current_stream(1).stream_id == 0
    with cuda.stream(stream):
        assert cuda.current_device() == 1 and cuda.current_stream() == cuda.current_stream(1) == stream
        assert cuda.current_stream(0) == cuda.default_stream(0)
        x = node.ones(3) * 2
        with cuda.device(0):
            assert cuda.current_stream() == cuda.default_stream(0) and node.zeros(1).device == "cuda:0"
    assert cuda.current_device() == 0 and cuda.current_stream(1) == cuda.default_stream(1)
    cuda.current_stream(1).wait_stream(stream)
    assert x.device == "cuda:1" and x.tolist() == [2, 2, 2]
    with cuda.device(1):
        assert cuda.Stream().device == "cuda:1" == cuda.default_stream().device
    cuda.set_stream(stream)
    assert cuda.current_device() == 1
    cuda.set_stream(cuda.default_stream(1))
    cuda.set_stream(cuda.default_stream(0))
    assert cuda.current_device() == 0


def test_streams_wait_for_events_of_other_gpus(node: Any) -> None:
    cuda = node.cuda
    side, event = cuda.Stream(device=1), cuda.Event()
    x = node.arange(1000.0, device="cuda:0")
    y = x * 2
    event.record()
    side.wait_event(event)
    with cuda.stream(side):
        z = y.to("cuda:1") + 1
    cuda.current_stream(1).wait_stream(side)
    cuda.current_stream(0).wait_stream(cuda.current_stream(1))
    np.testing.assert_array_equal((z.to("cuda:0") - y).numpy(), np.ones(1000, np.float32))
    assert event.device == "cuda:0"
    with pytest.raises(DeviceError, match="the event is one of cuda:0, the stream one of cuda:1"):
        event.record(side)
    side.synchronize()
    assert side.query() and event.query()
