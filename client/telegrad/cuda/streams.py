"""Streams and events of a GPU, under ``torch.cuda``'s names: queues of work that run side by side, and points in them.

A stream belongs to the session that was current when it was made. Which one is current belongs to a thread, and rides
with its operations: nothing here waits but ``synchronize`` and ``query``. As in PyTorch there are 32 streams per
priority, handed out in turn; so streams may be equal.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, Any

from telegrad._session.current import current_session
from telegrad._session.devices import DeviceLike, current_gpu, gpu_of, set_current_gpu
from telegrad._session.parts.capturing import current as current_capture
from telegrad._session.parts.capturing import refuse as refuse_in_capture
from telegrad._session.thread_modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, DeviceError, NotSupportedError
from telegrad_protocol.messages import STREAM_LEVELS, STREAMS_PER_LEVEL, RecordEvent, RecordStream, WaitEvent
from telegrad_protocol.meta import Device

if TYPE_CHECKING:
    from telegrad._session.session import ClientSession

_turn_lock = threading.Lock()


class Stream:
    """A queue of work on a GPU; ``priority`` 0 is the lowest, -3 the highest."""

    def __init__(self, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> None:
        self._session: ClientSession = current_session()
        self._device = gpu_of("Stream", device).name
        self._entered: list[StreamContext] = []
        number = kwargs.pop("_number", None)
        if kwargs:
            raise ArgumentTypeError(f"Stream: unknown arguments {', '.join(kwargs)}")
        self._number = _next_number(self._session, self._device, priority) if number is None else number

    @property
    def device(self) -> Device:
        """The GPU."""
        return Device(self._device)

    @property
    def stream_id(self) -> int:
        """The stream's number within its session; 0 for the default one."""
        return self._number

    @property
    def priority(self) -> int:
        """0, or less for work that goes first."""
        return -((self._number - 1) // STREAMS_PER_LEVEL) if self._number else 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority."""
        return 0, 1 - STREAM_LEVELS

    def wait_event(self, event: AcceleratorEvent) -> None:
        """Let what is submitted to this stream from here on wait for ``event``."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let what is submitted to this stream from here on wait for what ``stream`` has been given by now."""
        self.wait_event(check_stream("wait_stream", stream).record_event())

    def record_event(self, event: AcceleratorEvent | None = None) -> AcceleratorEvent:
        """Record an event, a new one where none is given."""
        recorded = Event() if event is None else event
        recorded.record(self)
        return recorded

    def is_capturing(self) -> bool:
        """Tell whether this thread captures a graph on this stream."""
        return current_capture() is not None and current_stream(self._device) == self

    def query(self) -> bool:
        """Tell whether everything submitted to this stream has run. One round trip."""
        refuse_in_capture("query")
        return bool(self._session.query("stream_query", self._device, self._number))

    def synchronize(self) -> None:
        """Wait until everything submitted to this stream has run."""
        refuse_in_capture("synchronize")
        self._session.query("stream_synchronize", self._device, self._number)

    def __enter__(self) -> Stream:
        block = StreamContext(self)
        block.__enter__()
        self._entered.append(block)
        return self

    def __exit__(self, *details: object) -> None:
        self._entered.pop().__exit__(*details)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return (self._session, self._device, self._number) == (other._session, other._device, other._number)

    def __hash__(self) -> int:
        return hash((id(self._session), self._device, self._number))

    def __repr__(self) -> str:
        return f"<telegrad.cuda.Stream device={self._device} stream_id={self._number}>"


def _next_number(session: ClientSession, device: str, priority: int) -> int:
    """Return the next stream of a priority, in turn; a priority beyond the range is taken as its end, as in PyTorch."""
    level = min(max(-int(priority), 0), STREAM_LEVELS - 1)
    with _turn_lock:
        turn = session.stream_turns.setdefault((device, level), count())
        return 1 + level * STREAMS_PER_LEVEL + next(turn) % STREAMS_PER_LEVEL


def check_stream(name: str, stream: object) -> Stream:
    """Return ``stream`` if it is a stream; raises ArgumentTypeError in the name of ``name`` if not."""
    if not isinstance(stream, Stream):
        raise ArgumentTypeError(f"{name}: expected a Stream, not {type(stream).__name__}")
    return stream


class StreamContext:
    """Makes a stream the current one of its GPU, and that the current GPU, within the block; does nothing for None."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = None if stream is None else check_stream("stream", stream)

    def __enter__(self) -> None:
        if self.stream is not None:
            self._previous = _current_number(self.stream._device)
            self._previous_gpu = _set_current(self.stream)

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            _set_number(self.stream._device, self._previous)
            set_current_gpu(self._previous_gpu)


def stream(stream: Stream | None) -> StreamContext:
    """Return a block whose operations run on ``stream``."""
    return StreamContext(stream)


def set_stream(stream: Stream | None) -> None:
    """Make ``stream`` the current one of its GPU, and that the current GPU, for this thread."""
    if stream is not None:
        _set_current(check_stream("set_stream", stream))


def current_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that this thread's operations on a GPU, by default the current one, run on."""
    name = gpu_of("current_stream", device).name
    return Stream(name, _number=_current_number(name))


def default_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that operations run on where no other was chosen."""
    return Stream(gpu_of("default_stream", device).name, _number=0)


def _current_number(device: str) -> int:
    return dict(thread.modes.streams).get(device, 0)


def _set_current(stream: Stream) -> Device | None:
    """Make ``stream`` and its GPU the current ones; return the GPU that was chosen before."""
    _set_number(stream._device, stream._number)
    if stream.device is current_gpu(stream._session):
        return thread.modes.gpu
    return set_current_gpu(stream.device)


def _set_number(device: str, number: int) -> None:
    chosen = {**dict(thread.modes.streams), device: number}
    thread.modes = thread.modes.but(streams=tuple(sorted([(name, n) for name, n in chosen.items() if n])))


class AcceleratorEvent:
    """A point in the work of a stream, set by ``record``: ``torch.Event``.

    ``blocking`` says in PyTorch how a thread waits; here the server answers when the device has come that far.
    """

    def __init__(
        self, device: DeviceLike = None, *, enable_timing: bool = False, blocking: bool = False,
        interprocess: bool = False,
    ) -> None:  # fmt: skip
        gpu_of("Event", device)
        if interprocess:
            raise NotSupportedError("Event: events are not shared with other processes")
        self._is_timed = bool(enable_timing)
        self._session: ClientSession | None = None
        self._id = 0
        self._device = ""

    @property
    def device(self) -> Device | None:
        """The GPU of the stream that the event was recorded on."""
        return Device(self._device) if self._device else None

    def record(self, stream: Stream | None = None) -> None:
        """Become the point that ``stream``, or the current one, reaches with what it has been given by now."""
        chosen = current_stream() if stream is None else check_stream("record", stream)
        session = chosen._session
        if self._session is None:
            self._session, self._id, self._device = session, session.new_id(), chosen._device
        self._check_place("record", chosen)
        session.submit(RecordEvent(self._id, chosen._device, chosen._number, self._is_timed), thread.modes)

    def wait(self, stream: Stream | None = None) -> None:
        """Let what is submitted to ``stream``, or the current one, from here on wait for this event."""
        chosen = current_stream() if stream is None else check_stream("wait", stream)
        if self._session is None:
            return
        if chosen._session is not self._session:
            raise DeviceError("wait: the event and the stream belong to different sessions")
        chosen._session.submit(WaitEvent(self._id, chosen._device, chosen._number), thread.modes)

    def _check_place(self, name: str, stream: Stream) -> None:
        if stream._session is not self._session:
            raise DeviceError(f"{name}: the event and the stream belong to different sessions")
        if stream._device != self._device:
            raise DeviceError(f"{name}: the event is one of {self._device}, the stream one of {stream._device}")

    def query(self) -> bool:
        """Tell whether everything before the event has run; True if it was never recorded. One round trip."""
        refuse_in_capture("query")
        return self._session is None or bool(self._session.query("event_query", self._id))

    def synchronize(self) -> None:
        """Wait until everything before the event has run."""
        refuse_in_capture("synchronize")
        if self._session is not None:
            self._session.query("event_synchronize", self._id)

    def elapsed_time(self, end_event: AcceleratorEvent) -> float:
        """Return the milliseconds from this event to ``end_event``; waits until both have been reached."""
        refuse_in_capture("elapsed_time")
        if not (self._is_timed and end_event._is_timed):
            raise ArgumentError("elapsed_time: both events must be created with enable_timing=True")
        if self._session is None or end_event._session is None:
            raise ArgumentError("elapsed_time: both events must be recorded before the time between them can be told")
        if self._session is not end_event._session or self._device != end_event._device:
            raise DeviceError("elapsed_time: the events belong to different sessions or devices")
        return float(self._session.query("elapsed_time", self._id, end_event._id))

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.free(self._id)

    def __repr__(self) -> str:
        state = f"on {self._device}" if self._device else "uninitialized"
        return f"<telegrad.cuda.Event {state}>"


class Event(AcceleratorEvent):
    """A point in the work of a stream, with the arguments of ``torch.cuda.Event``."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        if external:
            raise NotSupportedError("Event: events are not shared with captured graphs")
        super().__init__(enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def record_stream(self: Tensor, stream: Stream) -> None:
    """After the tensor is freed, keep its memory until ``stream`` has done what it had been given by then."""
    check_stream("record_stream", stream)
    if self.device.type != "cuda":
        raise NotSupportedError(f"record_stream: {self._meta} is on {self.device}, which has no streams")
    if self._session is not stream._session or self.device is not stream.device:
        raise DeviceError(f"record_stream: {self._meta} is on {self.device}, the stream on another device or session")
    self._session.submit(RecordStream(self._id, stream._number), thread.modes)


METHODS: dict[str, Any] = {"record_stream": record_stream}
