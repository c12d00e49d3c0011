"""Which operation the work of a GPU belongs to, on recordings that are written down here; and what notes launches."""

from __future__ import annotations

import json
import sys
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.engine.device.launch_queue import LaunchQueue
from server.engine.profiling import cupti_activity
from server.engine.profiling.cupti_activity import Activity
from server.engine.profiling.function_names import plain_name
from server.engine.profiling.recorder import work_of
from server.engine.profiling.traced_launches import traced, untraced
from telegrad_protocol.meta import Device
from telegrad_protocol.tracing import chrome, recording
from telegrad_protocol.tracing.recording import Descriptor, DeviceWork, Recording, packed, unpacked
from telegrad_protocol.tracing.timeline import Timeline

from .test_traces import read_strictly

PROPERTIES = {
    "name": "GPU", "numSms": 4, "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 8192,
}  # fmt: skip


def _bytes(*rows: tuple[int, ...]) -> bytes:
    return array("q", [number for row in rows for number in row]).tobytes()


def _kernel(name: int, begin: int, correlation: int, kind: int = 0, graph: int = 0) -> tuple[int, ...]:
    return (name, kind, begin, begin + 10, correlation, 7, graph, 640, packed(4, 2, 1), packed(128, 1, 1), 32, 1024)


def _recording(times: str, kernels: bytes, calls: bytes = b"", flushes: bytes = b"") -> Recording:
    names = [(0, "linear"), (0, "mm"), (0, "add_"), (2, "telegrad::backward"), (3, "ProfilerStep#1")]
    events = _bytes(
        # descriptor, begin, end, site, first result, first launch, launches, sequence
        (1, 1100, 1200, 1, 5, 0, 1, 0),
        (0, 1000, 1300, 1, 5, 0, 2, 0),
        (2, 1400, 1500, 2, 0, 2, 1, 0),
        (3, 1600, 1900, 3, 0, 0, 0, 0),
        (4, 900, 2000, 0, 0, 0, 0, 0),
    )
    texts = ["gemm", "bias", "splitKreduce_kernel", "add", "Memcpy HtoD", "call"]
    work = DeviceWork(0, times, "", texts, kernels, calls, flushes, PROPERTIES)
    sites = [recording.SiteName(1, "model.py", 3, "forward")]
    return Recording(99, 900, 2000, [Descriptor(*each) for each in names], sites, events, [work], [])


def _owners(recorded: Recording) -> list[tuple[str, str]]:
    return [(k.name, k.parent.name if k.parent else "-") for k in Timeline(recorded).kernels]


def test_launches_that_waited_belong_to_those_that_asked_for_them() -> None:
    """Three launches are made in one flush, long after; the first needs two kernels. A later one did not wait."""
    kernels = _bytes(
        *[_kernel(name, begin, 1, graph=3) for name, begin in ((0, 2000), (2, 2020), (1, 2040), (3, 2060))],
        _kernel(4, 2100, 2, kind=1),
    )
    calls = _bytes((5, 1550, 1560, 1), (5, 1700, 1710, 2))
    recorded = _recording(recording.CUPTI_TIMES, kernels, calls, _bytes((1540, 1570, 0, 3)))
    assert _owners(recorded) == [
        ("gemm", "aten::mm"), ("splitKreduce_kernel", "aten::mm"), ("bias", "aten::linear"), ("add", "aten::add_"),
        ("Memcpy HtoD", "telegrad::backward"),
    ]  # fmt: skip
    timeline = Timeline(recording.decode(recording.encode(recorded)))
    document = json.loads(json.dumps(chrome.document(chrome.events_of(timeline), timeline, 0, {})))
    by_category = read_strictly(document)
    assert [event["args"]["grid"] for event in by_category["kernel"]] == [[4, 2, 1]] * 4
    assert by_category["gpu_memcpy"][0]["args"]["bytes"] == 640
    assert document["deviceProperties"] == [{"id": 0, **PROPERTIES}]
    args = by_category["kernel"][0]["args"]
    assert (args["blocks per SM"], args["warps per SM"], args["est. achieved occupancy %"]) == (2.0, 8.0, 12)
    assert unpacked(packed(1 << 30, 3, 5)) == [1 << 30, 3, 5]


def test_launches_belong_to_operations_of_their_own_gpu() -> None:
    """The first launch of each of two GPUs was asked for by an operation on that GPU."""
    recorded = _recording(recording.CUPTI_TIMES, _bytes(_kernel(3, 2000, 1)), _bytes((5, 1550, 1560, 1)))
    flushes = _bytes((1540, 1570, 0, 1))
    first = recorded.devices[0]
    recorded.devices = [
        DeviceWork(number, first.times, "", first.names, first.kernels, first.calls, flushes, PROPERTIES)
        for number in (0, 1)
    ]
    recorded.descriptors.append(Descriptor(recording.OPERATION, "exp", device=1))
    recorded.events = _bytes((5, 1000, 1100, 1, 6, 0, 1, 0), (2, 1400, 1500, 2, 0, 0, 1, 0))
    owners = {(k.device, k.parent.name if k.parent else "-") for k in Timeline(recorded).kernels}
    assert owners == {(0, "aten::add_"), (1, "aten::exp")}


def test_times_between_events_belong_to_the_innermost_operation() -> None:
    kernels = _bytes(_kernel(5, 1110, 0), _kernel(5, 1100, 1), _kernel(5, 1410, 2))
    recorded = _recording(recording.EVENT_TIMES, kernels)
    recorded.events = _bytes(
        (1, 1100, 1200, 1, 5, 0, 1, 0), (0, 1000, 1300, 1, 5, 1, 1, 0), (2, 1400, 1500, 2, 0, 2, 1, 0)
    )
    owners = _owners(recorded)
    assert owners == [
        ("aten::mm (time between events)", "aten::mm"), ("aten::add_ (time between events)", "aten::add_"),
    ]  # fmt: skip
    timeline = Timeline(recorded)
    events = chrome.events_of(timeline)
    assert len([e for e in events if e.get("cat") == "cuda_runtime"]) == 2


class _NoGraphs:
    """Captures nothing."""

    def __call__(self, stream: int, work: Any) -> None:
        return None


def test_a_traced_queue_numbers_its_launches() -> None:
    queue, made = LaunchQueue(_NoGraphs(), lambda stream: True), list[int]()
    work = queue.deferring(lambda args, outs: queue.launch(lambda stream, n: made.append(n), 0, args))
    log = traced(queue, waits=True)
    try:
        queue.allow()
        work(1, None)
        assert (log.made, len(queue.waiting), made) == (0, 1, [])
        for number in (2, 3, 4):
            work(number, None)
        queue.flush()
        assert made == [1, 2, 3, 4] and log.made == 4
        rows = [tuple(log.rows[place : place + 4]) for place in range(0, len(log.rows), 4)]
        assert [row[2:] for row in rows] == [(0, 1), (1, 1), (2, 1), (3, 1)]
        assert all(begin <= end for begin, end, *_ in rows)
    finally:
        untraced(queue)
    assert type(queue) is LaunchQueue
    eager = traced(queue, waits=False)
    queue.allow()
    work(5, None)
    assert made[-1] == 5 and not queue.waiting and eager.made == 0
    untraced(queue)


class _Refused(Exception):
    pass


def _cupti(refuses: bool = False) -> Any:
    """A stand-in for NVIDIA's module that has the records of one buffer."""
    kinds = SimpleNamespace(CONCURRENT_KERNEL=10, KERNEL=3, MEMCPY=1, MEMSET=2, RUNTIME=5, DRIVER=4)
    state: dict[str, Any] = {"enabled": set(), "records": []}

    def enable(kind: int) -> None:
        if refuses and kind == kinds.DRIVER:
            raise _Refused("not permitted")
        state["enabled"].add(kind)

    def flush(forced: int) -> None:
        records, state["records"] = state["records"], []
        state["completed"](records)

    return SimpleNamespace(
        ActivityKind=kinds, activity_enable=enable, activity_disable=state["enabled"].discard, state=state,
        activity_register_callbacks=lambda requested, completed: state.update(completed=completed),
        activity_flush_all=flush, get_timestamp=lambda: cupti_activity.now() + 1_000_000,
        CallbackDomain=SimpleNamespace(DRIVER_API=1, RUNTIME_API=2),
        get_callback_name=lambda domain, number: "cudaLaunchKernel_v7000",
    )  # fmt: skip


def test_records_are_kept_while_somebody_uses_them() -> None:
    cupti = _cupti()
    activity = Activity(cupti)
    activity.use()
    activity.use()
    common = {"start": 10, "end": 20, "correlation_id": 4, "stream_id": 7, "device_id": 0, "graph_id": 0}
    kernel = SimpleNamespace(
        kind=10, name="k", **common, grid_x=1, grid_y=2, grid_z=3, block_x=4, block_y=5, block_z=6,
        registers_per_thread=9, static_shared_memory=1, dynamic_shared_memory=2,
    )  # fmt: skip
    cupti.state["records"] = [
        kernel, SimpleNamespace(kind=1, copy_kind=2, bytes=64, **common), SimpleNamespace(kind=2, bytes=8, **common),
        SimpleNamespace(kind=5, cbid=211, start=1, end=2, correlation_id=4), SimpleNamespace(kind=99),
    ]  # fmt: skip
    activity.flush()
    names = list(activity.names)
    assert [(names[w.name], w.kind, w.nbytes, w.shared) for w in activity.work()] == [
        ("k", 0, 0, 3), ("Memcpy DtoH", 1, 64, 0), ("Memset (Device)", 2, 8, 0)
    ]  # fmt: skip
    (call,) = activity.calls()
    assert activity.name_of_call(call.kind, call.function) == "cudaLaunchKernel"
    assert abs(activity.offset()[1] - 1_000_000) < 1_000_000
    activity.leave()
    assert cupti.state["enabled"]
    activity.leave()
    assert not cupti.state["enabled"] and not list(activity.work())
    refusing = _cupti(refuses=True)
    with pytest.raises(_Refused):
        Activity(refusing).use()
    assert not refusing.state["enabled"], "what was enabled before is not left on"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (None, "the module cupti is missing where the server runs: pip install 'telegrad-server[profiling]'"),
        (
            "import elftools.elf.elffile",
            "the module elftools is missing where the server runs: pip install 'pyelftools'",
        ),
        ("raise ImportError('libcupti.so.13: cannot open shared object file')", "pip install nvidia-cuda-cupti"),
        ("raise RuntimeError('not on this system')", "does not load where the server runs (not on this system)"),
    ],
)
def test_it_is_said_what_to_install_for_cupti(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, advice: str
) -> None:
    monkeypatch.setattr(cupti_activity, "_opened", [])
    monkeypatch.delitem(sys.modules, "cupti.cupti", raising=False)
    monkeypatch.setitem(sys.modules, "elftools", None)
    if text is None:
        monkeypatch.setitem(sys.modules, "cupti", None)
    else:
        monkeypatch.delitem(sys.modules, "cupti", raising=False)
        (tmp_path / "cupti").mkdir()
        (tmp_path / "cupti" / "__init__.py").touch()
        (tmp_path / "cupti" / "cupti.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
    why = cupti_activity.open_activity()
    sys.modules.pop("cupti", None)  # monkeypatch puts back what was there before
    assert isinstance(why, str) and advice in why


def test_too_many_records_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti_activity, "MOST_RECORDS", 2)
    cupti = _cupti()
    activity = Activity(cupti)
    activity.use()
    cupti.state["records"] = [SimpleNamespace(kind=5, cbid=1, start=1, end=2, correlation_id=n) for n in range(5)]
    activity.flush()
    assert len(list(activity.calls())) == 2 and activity.dropped == 3
    activity.leave()


class _Broken:
    released = False

    def result(self, began: int, ended: int, is_final: bool = True) -> Any:
        raise _Refused("CUPTI has failed")

    def release(self) -> None:
        self.released = True


def test_a_device_that_cannot_tell_its_work_spoils_nothing_else() -> None:
    broken = _Broken()
    work = work_of(Device("cuda:1"), broken, 0, 1, True)  # type: ignore[arg-type]
    assert broken.released and work.device == 1 and not work.kernels and "CUPTI has failed" in work.why


def test_names_of_functions_are_shown_as_they_are_declared() -> None:
    assert plain_name("_ZN2at6native3addIfEEvPT_i") == "void at::native::add<float>(float*, int)"
    assert plain_name("sm90_xmma_gemm") == "sm90_xmma_gemm" and plain_name("_Zx") == "_Zx"
