"""What one session keeps: values, modes, devices, events, sites, failure and replies; handlers of instructions get it.

It is a plain object below the handlers. It executes nothing and knows neither the loop of instructions nor a socket.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from server.allocator.core.mem_pool import MemPool
from server.engine.autograd.client_pass import ClientPass
from server.engine.autograd.client_pass import Stop as StopOfPass
from server.engine.context import Context
from server.engine.device.interface import Event
from server.engine.extensions.functions import Extensions
from server.engine.graphs.graph import CapturedGraph
from server.engine.plan import plans_made
from server.engine.programs.shared_memory import SharedMemory
from server.engine.random import Generator
from server.engine.replay.rhythm import Rhythm, Settling
from server.engine.user_kernels.modules import ModuleAccount
from server.engine.value import Backend, Value
from telegrad_protocol import dtypes, messages
from telegrad_protocol.errors import DeviceError, NotComputedError, UnknownIdError
from telegrad_protocol.meta import Device

from .handles import Handles
from .host_memory.account import Charged, HostAccount
from .host_memory.census import count_nodes
from .replies import ReplyQueue
from .uploads import TensorUpload

_ALL_VALUES = {Value}
MOST_LINES: Final = 1 << 16
"""The last lines of a trace of the dispatcher that are kept."""
MAX_STOPPED_THREADS: Final = 1024
"""Of so many threads of a client it is kept that they are stopped; the one that stopped first goes on after that."""

_ENTRY_BYTES: Final = 400
_VARIANT_BYTES: Final = 4000
_EVENT_BYTES: Final = 1024
_PASS_BYTES: Final = 4096
_LONGEST_WARNING: Final = 4000
"""Characters of a warning that the client is told."""
_PLAN_BYTES: Final = 1500
_STATE_BYTES: Final = 256
_HISTORY_ENTRY_BYTES: Final = 500
"""What the host holds for an entry of one of the session's tables, calls that came again, an event, a pass, a plan of
calls of an extension, a generator's state, and an entry of a history of allocations."""


class Absent:
    """Stands for a result that was never computed; ``reason`` says why."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class ClientCapture(Protocol):
    """A capture that is going on: what the handlers of other instructions ask of it."""

    random_states: dict[int, Any]
    """States of the generators that are noted in it, which each replay notes anew."""

    def refuse(self, backend: Backend, name: str) -> None:
        """Raise CaptureError if the capture is of this thread, and of this device."""

    def refuse_code(self, name: str) -> None:
        """Raise CaptureError if the capture is of this thread: what host code does is not noted."""

    def execute(self, name: str, backend: Backend | None, run: Callable[[tuple[Any, ...]], Any], args: Any) -> None:
        """Call ``run(args)``, which is no operation, as a part of the capture if it is of this thread and device."""

    def keep_uploaded(self, value: Value) -> Value:
        """Return what stands for an uploaded value: a copy that every replay makes again, if it is on the device."""

    def abandon(self) -> None:
        """End it without a graph."""


class Stop(NamedTuple):
    """What stopped the instructions of one of the client's threads."""

    failure: int
    reason: str
    message: messages.Failure | None


class SessionState:
    """One session's data. ``values`` and ``events`` go by the client's ids, ``sites`` are lines of its program."""

    def __init__(self, number: int, backends: dict[Device, Backend], default_device: Device) -> None:
        self.number = number
        self.backends = backends
        self.default_device = default_device
        self.default_dtype = dtypes.float32
        self.isolation = "shared"
        """Whose sessions live in this process: everybody's, those of one tenant (``tenant``), or this one alone
        (``session``)."""
        self.tenant = ""
        """Whose session it is."""
        self.host_code = ""
        """Whether C++ of the client may run, as ``TELEGRAD_ALLOW_HOST_CODE`` says it; empty: as that is set."""
        self.context = Context(backends, number)
        self.context.generators = {device: Generator() for device in backends}
        for generator in self.context.generators.values():
            generator.seed()
        self.values: dict[int, Value | Absent] = {}
        """Tensors, the session's modules and kernels, and instances of its extensions' classes."""
        self.host_memory = host = HostAccount(self._count_values, self._count_nodes)
        self.context.host_memory = host
        self.context.warn = self._warn
        self.events: dict[int, Event] = Charged(host, _EVENT_BYTES)
        self.stops: dict[int, StopOfPass] = Charged(host, _ENTRY_BYTES)
        """The client's nodes and the places in the backward graph that it watches."""
        self.passes: dict[int, ClientPass] = Charged(host, _PASS_BYTES)
        """Backward passes that have begun and stop where the client computes."""
        self.random_states: dict[int, dict[Device, Any]] = Charged(host, _STATE_BYTES * len(backends))
        """States of the generators that the client has noted."""
        self.sites: dict[int, messages.Site] = Charged(host, _ENTRY_BYTES, _length_of_site)
        self.kept: dict[str, tuple[str, list[Value]]] = Charged(host, _ENTRY_BYTES, _length_of_kept)
        """Values that outlive the client's numbers, by name, each with a text that only clients read."""
        self.programs: dict[int, Any] = Charged(host, 0, lambda program: program.nbytes)
        """Sequences of instructions that the session was told, by number."""
        self.graphs: dict[int, CapturedGraph] = Charged(host, 0, lambda graph: graph.nbytes)
        """Graphs that the client has captured, by number."""
        self.graph_pools: dict[tuple[Device, int], MemPool] = {}
        """The pools of graphs, by device and the client's number."""
        self.shared_memory: dict[Device, SharedMemory] = {}
        """What stretches are captured on, where no state of memory comes again."""
        self.lent_variants: dict[tuple[bytes, Any], Any] = Charged(host, _VARIANT_BYTES)
        """Of stretches, what equal calls elsewhere may be executed by: by the calls, and the situation."""
        self.divides: set[int] = set()
        """Operations that no stretch holds any more: they turned out to write to what was there before it, or to take
        indices of which only a device can tell whether they are good."""
        self.fixed_numbers: dict[tuple[int, int], None] = Charged(host, _ENTRY_BYTES)
        """Calls of which stretches hold no numbers that change, as ``programs.numbered`` has their places."""
        self.capture: ClientCapture | None = None
        """What is being captured."""
        self.verifies_programs = False
        """Whether what is executed as one is compared with its instructions."""
        self.histories: dict[int, int | None] = Charged(host, _ENTRY_BYTES, _bytes_of_history)
        """How many entries the session's histories of allocations may have, by allocator."""
        self._rhythm, self._settling = Rhythm(), Settling()
        self.inbox: deque[Any] = deque()
        self.instruction: Any = None
        """The instruction that is being executed."""
        self.upload: TensorUpload | None = None
        """The tensor whose chunks are still coming in the stream of instructions."""
        self.handles = Handles()
        self.modules = ModuleAccount(host)
        """What the session has loaded of its own code; the modules and kernels are among ``values``."""
        self.allows_kernels = False
        """Whether the session may load code of its own, as the gateway has decided."""
        self.extensions = Extensions(Charged(host, _PLAN_BYTES))
        self.replies = ReplyQueue(self.context.checks.outstanding)
        self.verify: Callable[[], None] = _nothing_to_verify
        """Waits for devices and raises what they found wrong with work that no instruction has brought."""
        self.fail: Callable[[Any, Exception], None] = _fail_nobody
        """Fails the session at an instruction; the session sets it."""
        self.failure = 0
        """The number of the failure that the client has not seen yet; 0 where there is none."""
        self.failures = 0
        self.failure_reason = ""
        self.last_failure: messages.Failure | None = None
        self.on_failure: Callable[[messages.Failure], None] = _tell_nobody
        """Is told of every instruction that fails."""
        self.thread = 0
        """The number of the client's thread whose instructions are executed; ``failure`` is one of this thread."""
        self.stopped: dict[int, Stop] = {}
        """Failures of other threads that the client has not seen yet, by the numbers of the threads."""
        self.interrupt = 0
        """The number of the client's interrupt up to which nothing is executed; 0 where there is none."""
        self.passed_interrupt = 0
        """The number of the last interrupt that the stream of instructions came to."""
        self.is_stopped = False
        """Whether instructions are passed over: after a failure, or before an interrupt. ``update_stop`` sets it."""
        self.handlers: dict[type, Callable[[Any], Any]] = {}
        """What executes each kind of instruction but calls; the session fills it in."""
        self.plain_handlers: dict[type, Callable[[Any], Any]] = {}
        """The handlers in whose place others note what they do; empty while the session is not profiled."""
        self.operations = 0
        """How many operations were executed."""
        self.drawn = 0
        """How many numbers of nodes the session's profiles have drawn, but for one that goes on."""
        self.opened = time.time()
        self._absent = Absent("")
        self._next_id = messages.SERVER_IDS

    def value(self, id: int) -> Value:
        """Return the value that the client calls ``id``."""
        value = self.values.get(id)
        if value.__class__ is Value:
            return value
        if isinstance(value, Absent):
            raise NotComputedError(f"this tensor was never computed: {value.reason}")
        raise UnknownIdError(f"the session has no tensor number {id}")

    def values_of(self, ids: Collection[int]) -> list[Value]:
        """Return the values that the client calls ``ids``."""
        values: list[Any] = list(map(self.values.get, ids))
        if {*map(type, values)} == _ALL_VALUES:
            return values
        return [self.value(id) for id in ids]

    def optional(self, id: int | None) -> Value | None:
        """Return the value that the client calls ``id``; None for None."""
        return None if id is None else self.value(id)

    def new_id(self) -> int:
        """Return an unused number for a result that the client did not name."""
        while self._next_id in self.values:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    def backend(self, name: str) -> Backend:
        """Return the backend of a device by name; that of the default device where ``name`` is empty."""
        return find_backend(self.backends, self.default_device, name)

    def _warn(self, text: str) -> None:
        site = getattr(self.instruction, "site", 0)
        self.replies.add(messages.Answer(messages.WARNED, [text[:_LONGEST_WARNING], site]))

    def _count_values(self) -> int:
        return len(self.values)

    def _count_nodes(self) -> int:
        kept = (value for _, values in self.kept.values() for value in values)
        return count_nodes(chain(self.values.values(), kept), self.stops.values(), self.passes.values())

    def beat(self, number: int) -> None:
        """Note a backward pass or a read of a tensor; where these repeat themselves, allocators learn again."""
        if self._rhythm.beat(number, len(self.values)):
            self._rhythm.spend(any([backend.allocator.end_cooldown() for backend in self.backends.values()]))
        if self._settling.is_settled(number, plans_made()):
            for backend in self.backends.values():
                backend.allocator.expect_pass()

    def begin_training(self) -> None:
        """Note that other leaves are trained than before: what came before says nothing of what allocators will see."""
        for backend in self.backends.values():
            backend.allocator.begin_program()

    def drop_graphs(self) -> None:
        """End a capture, and give up all captured graphs."""
        if self.capture is not None:
            self.capture.abandon()
            self.capture = None
        self.forget_graphs(list(self.graphs))

    def forget_graphs(self, ids: Collection[int]) -> None:
        """Give up those captured graphs that there are of these numbers."""
        for id in ids:
            graph = self.graphs.pop(id, None)
            if graph is not None:
                self.close_graph(graph)

    def close_graph(self, graph: CapturedGraph) -> None:
        """Give up a graph, and with the last graph of a pool the pool."""
        graph.close()
        self.graph_pools = {place: pool for place, pool in self.graph_pools.items() if pool.uses}

    def clear(self) -> None:
        """Forget all that the client holds, and the replies that were not sent."""
        self.on_failure = _tell_nobody
        self.inbox.clear()
        self.replies.clear()
        self.upload = None
        self.handles.clear()
        self.values.clear()
        self.kept.clear()
        self.events.clear()
        self.passes.clear()
        self.stops.clear()
        self.random_states.clear()
        self.sites.clear()
        self.programs.clear()
        self.lent_variants.clear()
        self.shared_memory.clear()
        self.drop_graphs()
        self.histories.clear()
        self.host_memory.close()

    def mark_absent(self, ids: Collection[int], reason: str) -> None:
        """Note why results were not computed; existing tensors stay what they were."""
        absent = self._absent if self._absent.reason == reason else Absent(reason)
        self._absent = absent
        for id in ids:
            self.values.setdefault(id, absent)

    def update_stop(self) -> None:
        """Set ``is_stopped``, after ``failure`` or ``interrupt`` has changed."""
        self.is_stopped = bool(self.failure or self.interrupt)

    def switch_thread(self, number: int) -> None:
        """Let what follows be instructions of another thread of the client: it has a failure of its own, or none."""
        if number == self.thread:
            return
        stopped = self.stopped
        if self.failure:
            if len(stopped) >= MAX_STOPPED_THREADS:
                del stopped[next(iter(stopped))]
            stopped[self.thread] = Stop(self.failure, self.failure_reason, self.last_failure)
        self.thread = number
        self.failure, self.failure_reason, self.last_failure = stopped.pop(number, _NOT_STOPPED)
        self.update_stop()

    def forget_failures(self) -> None:
        """Go on in all threads; the next client's first instructions are those of its main thread."""
        self.interrupt = self.passed_interrupt = 0
        self.stopped.clear()
        self.thread = 0
        self.failure, self.failure_reason, self.last_failure = _NOT_STOPPED
        self.update_stop()

    def resume(self, failure: int) -> None:
        """Execute again what comes from the thread whose failure this is."""
        if failure == self.failure:
            self.failure = 0
            self.update_stop()
            return
        for number, stop in self.stopped.items():
            if stop.failure == failure:
                del self.stopped[number]
                return


def _bytes_of_history(entries: int | None) -> int:
    return _HISTORY_ENTRY_BYTES * (entries or 0)


def _length_of_site(site: messages.Site) -> int:
    return len(site.file) + len(site.function)


def _length_of_kept(kept: tuple[str, list[Value]]) -> int:
    structure, values = kept
    return len(structure) + _ENTRY_BYTES * len(values)


_NOT_STOPPED: Final = Stop(0, "", None)


class Suspended(NamedTuple):
    """The instruction in the middle of which others work, and the number of the last node before."""

    instruction: Any
    sequence: int


def find_backend(backends: Mapping[Device, Backend], default_device: Device, name: str) -> Backend:
    """Return the backend of a device by name; that of ``default_device`` where ``name`` is empty."""
    device = Device(name).on_server if name else default_device
    backend = backends.get(device)
    if backend is None:
        raise DeviceError(f"device {device} is not available here; there are: {', '.join(map(str, backends))}")
    return backend


def _tell_nobody(failure: messages.Failure) -> None:
    """Stand in for ``on_failure`` until an owner sets it."""


def _fail_nobody(instruction: Any, error: Exception) -> None:
    """Stand in for ``fail`` until a session sets it."""
    raise error


def _nothing_to_verify() -> None:
    """Stand in for ``verify`` until a session sets it."""
