"""Memory as the sessions of a host see it: their own bytes, their own lines, and nothing of their neighbours."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from server.gateway.app import create_app
from server.gateway.settings import Settings
from server.worker.host import Host
from telegrad_protocol.errors import ConfigurationError, InternalError


@pytest.fixture
def two(host: Any) -> Iterator[tuple[Any, Any]]:
    """Two connections to one host."""
    import telegrad

    with telegrad.connect(in_process=host) as one, telegrad.connect(in_process=host) as other:
        yield one, other


def session_of(connection: Any) -> Any:
    return connection.session.transport._session


def test_numbers_of_sessions_are_never_used_again(host: Any) -> None:
    import telegrad

    numbers = []
    for _ in range(3):
        with telegrad.connect(in_process=host) as connection:
            numbers.append(session_of(connection).state.number)
    assert len(set(numbers)) == 3
    for number in numbers:
        with pytest.raises(InternalError, match=f"session number {number} was used before"):
            host.open(number, {})


def test_options_are_refused_when_the_server_starts_by_name() -> None:
    with pytest.raises(ConfigurationError, match="TELEGRAD_ALLOC_CONF: unknown option 'colour'"):
        create_app(Settings(devices=("cpu",), alloc_conf="colour:red"))


def test_options_reach_the_engine() -> None:
    script = (
        "from server.worker.host import Host\n"
        "config = Host(['cpu']).backend('cpu').allocator.config\n"
        "print(config.max_split_size, config.garbage_collection_threshold)\n"
    )
    environment = {**os.environ, "TELEGRAD_ALLOC_CONF": "max_split_size_mb:64, garbage_collection_threshold:0.5"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(64 << 20), "0.5"]


def lines_that_hold(snapshot: dict[str, Any]) -> set[tuple[str, str]]:
    """The operation and the file's last name of every block with frames."""
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["frames"]]
    return {(block["frames"][0]["name"], os.path.basename(block["frames"][-1]["filename"])) for block in blocks}


def test_the_history_names_operation_and_line_of_its_own_session_only(two: tuple[Any, Any]) -> None:
    import telegrad as tg

    one, other = two
    other.use()
    tg.cuda.memory._record_memory_history()
    theirs = tg.zeros(300, 300)
    one.use()
    mine = tg.ones(1000)
    assert lines_that_hold(tg.cuda.memory._snapshot()) == set()
    tg.cuda.memory._record_memory_history(max_entries=2)
    kept = mine + mine
    snapshot = tg.cuda.memory._snapshot()
    assert lines_that_hold(snapshot) == {("add", "test_sessions.py")}
    assert {entry["owner"] for entry in snapshot["device_traces"][0]} == {session_of(one).state.number}
    assert [entry["action"] for entry in snapshot["device_traces"][0]] == ["alloc", "snapshot"]
    owners = {block["owner"] for segment in snapshot["segments"] for block in segment["blocks"]}
    assert owners == {session_of(one).state.number, None}
    (block,) = [b for s in snapshot["segments"] for b in s["blocks"] if b["frames"]]
    line = test_the_history_names_operation_and_line_of_its_own_session_only.__code__.co_firstlineno + 11
    assert block["frames"][1]["line"] == line
    other.use()
    assert lines_that_hold(tg.cuda.memory._snapshot()) == {("zeros", "test_sessions.py")}
    del theirs, kept


def test_another_host_in_the_process_takes_no_history_away(tg: Any) -> None:
    tg.cuda.memory._record_memory_history()
    Host(["cpu"])
    kept = tg.ones(1000)
    assert lines_that_hold(tg.cuda.memory._snapshot()) == {("ones", "test_sessions.py")}
    tg.cuda.memory._record_memory_history(None)
    del kept


def test_pytorchs_viewer_opens_a_dumped_snapshot(tg: Any, tmp_path: pathlib.Path) -> None:
    import torch.cuda._memory_viz as viz

    tg.cuda.memory._record_memory_history("all", context="all", stacks="python", device=None)
    kept = [tg.randn(200, 200) @ tg.randn(200, 200) for _ in range(3)]
    tg.cuda.memory._dump_snapshot(tmp_path / "snapshot.pickle")
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert "test_sessions.py" in viz.memory(snapshot, format_flamegraph=str)
    assert viz.trace_plot(snapshot).lstrip().startswith("<!DOCTYPE html>")
    tg.cuda.memory._record_memory_history(None)
    assert tg.cuda.memory._snapshot()["device_traces"] == [[]]
    del kept


def test_pytorchs_names_are_there_and_mean_the_session(two: tuple[Any, Any]) -> None:
    import telegrad as tg

    _, other = two
    x = tg.zeros(1000, 1000)
    nested = tg.cuda.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == tg.cuda.memory_allocated() == 4_000_256
    assert tg.cuda.memory_reserved() >= 4_000_256 and tg.cuda.max_memory_reserved() >= tg.cuda.memory_reserved()
    assert tg.cuda.memory_cached() == tg.cuda.memory_reserved() <= tg.cuda.max_memory_cached()
    assert f"session {session_of(other).state.number}" in tg.cuda.memory_summary(abbreviated=True)
    del x
    tg.cuda.reset_max_memory_allocated()
    tg.cuda.reset_accumulated_memory_stats()
    assert tg.cuda.max_memory_allocated() == 0 == tg.cuda.memory_stats()["allocation.all.allocated"]
    assert tg.cuda.get_allocator_backend() == "native" and tg.cuda.host_memory_stats_as_nested_dict() == {}
    assert set(tg.cuda.memory.__all__) <= set(dir(tg.cuda))
    tg.cuda.empty_cache()


def test_a_chain_of_operations_needs_the_memory_of_two(tg: Any) -> None:
    """As in PyTorch: what has died is freed before the next operation asks for memory."""
    x = tg.ones(250_000)
    tg.cuda.reset_peak_memory_stats()
    for _ in range(100):
        x = x + 1
    assert x.sum().item() == 101 * 250_000
    assert tg.cuda.max_memory_allocated() == 2 * 1_000_448


def test_a_session_limits_itself(tg: Any) -> None:
    free, total = tg.cuda.mem_get_info()
    assert 0 < free <= total and tg.cuda.get_per_process_memory_fraction() == 1.0
    tg.cuda.set_per_process_memory_fraction(0.001)
    with pytest.raises(tg.cuda.OutOfMemoryError, match="session quota exceeded on cpu"):
        tg.zeros(total // 100, dtype=tg.uint8).sum().item()
    tg.cuda.set_per_process_memory_fraction(1)
    assert tg.zeros(10).sum().item() == 0
    with pytest.raises(tg.TelegradError, match="fraction"):
        tg.cuda.set_per_process_memory_fraction(2)


def test_pools_and_raw_memory_go_with_their_session(host: Any) -> None:
    import telegrad as tg

    allocator = host.backend("cpu").allocator
    before = {*allocator.heap.private}  # those of sessions that other tests share
    with tg.connect(in_process=host) as connection:
        pool = tg.cuda.MemPool()
        with tg.cuda.use_mem_pool(pool):
            x = tg.ones(300, 300)
            assert pool.use_count() == 2
        (segment,) = pool.snapshot()
        assert segment["segment_pool_id"] == pool.id and tg.cuda.memory_snapshot(pool.id)
        pointer = tg.cuda.caching_allocator_alloc(5000)
        tg.cuda.caching_allocator_delete(pointer)
        with pytest.raises(tg.TelegradError, match="no memory was allocated"):
            tg.cuda.caching_allocator_delete(pointer)
        tg.cuda.caching_allocator_alloc(7000)
        number = session_of(connection).state.number
        del x
    assert allocator.allocated_bytes(number) == 0 and not {*allocator.heap.private} - before
    assert not allocator.history.is_wanted
