"""NVIDIA's activity interface, CUPTI, of this process: what was launched, and when GPUs did it.

There is one such interface in a process, which sees all sessions; ``CuptiTracer`` takes what belongs to one. Records
come in buffers, mostly when they are flushed at the end. CUPTI has its own clock, which is compared with the host's.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from server.disclosure import without_folders
from telegrad_protocol.tracing.recording import packed

now: Final = time.monotonic_ns
BUFFER_BYTES: Final = 8 << 20
MOST_RECORDS: Final = 1 << 19
"""So many records are kept for all sessions, a hundred bytes each; later ones are missing."""
_COMPARISONS: Final = 9
_COPIES: Final = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}


class Work(NamedTuple):
    """A kernel, a copy or a fill, on CUPTI's clock; ``kind`` is a place in ``recording.KINDS``, ``name`` in the names.

    ``grid`` and ``block`` are as ``recording.packed`` makes them.
    """

    kind: int
    name: int
    begin: int
    end: int
    correlation: int
    stream: int
    device: int
    graph: int
    nbytes: int
    grid: int
    block: int
    registers: int
    shared: int


class Call(NamedTuple):
    """A call of CUDA, on CUPTI's clock: CUPTI's kind and number of the function."""

    kind: int
    function: int
    begin: int
    end: int
    correlation: int


class Activity:
    """The interface while at least one session uses it; ``cupti`` is NVIDIA's module."""

    def __init__(self, cupti: Any) -> None:
        self.cupti = cupti
        self.dropped = 0
        self.names: dict[str, int] = {}
        """The names of work, by their numbers."""
        self._work, self._calls = array("q"), array("q")
        self._count = 0
        self._users = 0
        self._is_registered = False
        kinds = cupti.ActivityKind
        self._enabled = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET, kinds.RUNTIME, kinds.DRIVER)
        self._readers: dict[int, Callable[[Any], None]] = {
            int(kinds.CONCURRENT_KERNEL): self._read_kernel, int(kinds.KERNEL): self._read_kernel,
            int(kinds.MEMCPY): self._read_copy, int(kinds.MEMSET): self._read_fill,
            int(kinds.RUNTIME): self._read_call, int(kinds.DRIVER): self._read_call,
        }  # fmt: skip

    def use(self) -> None:
        """Begin to take records, unless they are taken already; raises what CUPTI finds wrong."""
        if not self._is_registered:
            self.cupti.activity_register_callbacks(_buffer_requested, self._buffer_completed)
            self._is_registered = True
        if not self._users:
            enabled = []
            try:
                for kind in self._enabled:
                    self.cupti.activity_enable(kind)
                    enabled.append(kind)
            except Exception:
                for kind in enabled:
                    self.cupti.activity_disable(kind)
                raise
        self._users += 1

    def flush(self) -> None:
        """Take the records of all that GPUs have completed, also where others of the same buffer are not complete."""
        self.cupti.activity_flush_all(0)
        self.cupti.activity_flush_all(1)

    def leave(self) -> None:
        """End ``use``; with the last user records are taken no more, and those that are left are forgotten."""
        self._users -= 1
        if self._users:
            return
        for kind in self._enabled:
            self.cupti.activity_disable(kind)
        self.cupti.activity_flush_all(1)
        self._work, self._calls, self._count, self.dropped = array("q"), array("q"), 0, 0
        self.names.clear()

    def work(self) -> Iterator[Work]:
        """Yield what GPUs have done, of all sessions."""
        return map(Work._make, _rows(self._work, len(Work._fields)))

    def calls(self) -> Iterator[Call]:
        """Yield the calls of CUDA, of all sessions."""
        return map(Call._make, _rows(self._calls, len(Call._fields)))

    def offset(self) -> tuple[int, int]:
        """Return the host's time, and CUPTI's clock minus the host's: what the quickest of several comparisons says."""
        best: tuple[int, int, int] | None = None
        for _ in range(_COMPARISONS):
            begin = now()
            theirs = int(self.cupti.get_timestamp())
            end = now()
            middle = (begin + end) // 2
            if best is None or end - begin < best[0]:
                best = (end - begin, middle, theirs - middle)
        return (best[1], best[2]) if best else (0, 0)

    def name_of_call(self, kind: int, function: int) -> str:
        """Return the name of a function of CUDA, such as ``cuLaunchKernel``, without a version's ending."""
        cupti = self.cupti
        is_driver = kind == int(cupti.ActivityKind.DRIVER)
        domain = cupti.CallbackDomain.DRIVER_API if is_driver else cupti.CallbackDomain.RUNTIME_API
        try:
            return str(cupti.get_callback_name(domain, function)).partition("_v")[0]
        except Exception:  # a function that this version of CUPTI does not know
            return f"{'driver' if is_driver else 'runtime'} call {function}"

    def _buffer_completed(self, activities: list[Any]) -> None:
        readers = self._readers
        for activity in activities:
            read = readers.get(int(activity.kind))
            if read is None:
                continue
            if self._count >= MOST_RECORDS:
                self.dropped += 1
            else:
                self._count += 1
                read(activity)

    def _read_kernel(self, a: Any) -> None:
        self._work.extend((
            0, self._number(str(a.name)), a.start, a.end, a.correlation_id, a.stream_id, a.device_id, a.graph_id, 0,
            packed(a.grid_x, a.grid_y, a.grid_z), packed(a.block_x, a.block_y, a.block_z), a.registers_per_thread,
            a.static_shared_memory + a.dynamic_shared_memory,
        ))  # fmt: skip

    def _number(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _read_copy(self, a: Any) -> None:
        name = f"Memcpy {_COPIES.get(int(a.copy_kind), 'Unknown')}"
        self._add_move(1, name, a)

    def _read_fill(self, a: Any) -> None:
        self._add_move(2, "Memset (Device)", a)

    def _add_move(self, kind: int, name: str, a: Any) -> None:
        self._work.extend((
            kind, self._number(name), a.start, a.end, a.correlation_id, a.stream_id, a.device_id, a.graph_id, a.bytes,
            0, 0, 0, 0,
        ))  # fmt: skip

    def _read_call(self, a: Any) -> None:
        self._calls.extend((int(a.kind), a.cbid, a.start, a.end, a.correlation_id))


def _rows(numbers: array[int], size: int) -> Iterator[tuple[int, ...]]:
    iterator = iter(numbers)
    return zip(*[iterator] * size, strict=True)


def _buffer_requested() -> tuple[int, int]:
    return BUFFER_BYTES, 0


_opened: list[Any] = []
"""The interface of this process, or the reason why there is none, once somebody asked for it."""


def open_activity() -> Activity | str:
    """Return the interface of this process, or why there is none."""
    if not _opened:
        _opened.append(_open())
    return _opened[0]  # type: ignore[no-any-return]


_PACKAGES: Final = {"cupti": "telegrad-server[profiling]", "elftools": "pyelftools", "cuda": "cuda-bindings"}
"""What to install for modules that are missing."""


def _why_not_loaded(error: Exception) -> str:
    """Return why NVIDIA's module does not load, and what to do about it."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        module = error.name.partition(".")[0]
        package = _PACKAGES.get(module, module)
        return f"the module {module} is missing where the server runs: pip install '{package}'"
    text = without_folders(str(error))
    if isinstance(error, ImportError):
        return (
            f"cupti-python does not load where the server runs ({text}): pip install nvidia-cuda-cupti has its library"
        )
    return f"cupti-python does not load where the server runs ({text})"


def _open() -> Activity | str:
    try:
        from cupti import cupti
    except Exception as error:
        return _why_not_loaded(error)
    try:
        activity = Activity(cupti)
        activity.use()
        activity.leave()
    except Exception as error:
        return f"CUPTI refuses: {error}"
    return activity
