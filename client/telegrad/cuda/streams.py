"""Streams of a GPU under ``torch.cuda``'s names: queues of work that run side by side.

A stream belongs to the session that was current when it was made. Which one is current belongs to a thread, and rides
with its operations: nothing here waits but ``synchronize`` and ``query``. As in PyTorch there are 32 streams per
priority, handed out in turn; so streams may be equal.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, Any

from telegrad._session import modes as _modes
from telegrad._session.modes import thread
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, DeviceError, NotSupportedError
from telegrad_protocol.messages import STREAM_LEVELS, STREAMS_PER_LEVEL, RecordStream
from telegrad_protocol.meta import Device

from ._place import Place, name_of

if TYPE_CHECKING:
    from telegrad._session.session import Session

    from .events import Event

_turning = threading.Lock()


def gpu_of(name: str, device: Place) -> str:
    """The name of a GPU given as index, name or None; DeviceError for a device without streams."""
    session = _modes.current_session()
    if device is None and session.default_device.type != "cuda":
        device = next((d for d in session.devices if d.type == "cuda"), None)
        if device is None:
            raise DeviceError(f"{name}: the server has no GPU, and its CPU has no streams")
    found = name_of(device)
    if not found.startswith("cuda"):
        raise DeviceError(f"{name}: device {found} has no streams; expected a GPU")
    return found


class Stream:
    """A queue of work on a GPU; ``priority`` 0 is the lowest, -3 the highest."""

    def __init__(self, device: Place = None, priority: int = 0, **options: Any) -> None:
        self._session: Session = _modes.current_session()
        self._device = gpu_of("Stream", device)
        self._entered: list[StreamContext] = []
        number = options.pop("_number", None)
        if options:
            raise ArgumentTypeError(f"Stream: unknown arguments {', '.join(options)}")
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

    def wait_event(self, event: Event) -> None:
        """Let what is submitted to this stream from here on wait for ``event``."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let what is submitted to this stream from here on wait for what ``stream`` has been given by now."""
        self.wait_event(check_stream("wait_stream", stream).record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event, a new one where none is given."""
        from .events import Event

        recorded = Event() if event is None else event
        recorded.record(self)
        return recorded

    def query(self) -> bool:
        """Whether everything submitted to this stream has run. One round trip."""
        return bool(self._session.query("stream_query", self._device, self._number))

    def synchronize(self) -> None:
        """Wait until everything submitted to this stream has run."""
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


def _next_number(session: Session, device: str, priority: int) -> int:
    """The next of the streams of a priority, in turn; those beyond the range count as its ends, as in PyTorch."""
    level = min(max(-int(priority), 0), STREAM_LEVELS - 1)
    with _turning:
        turn = session.stream_turns.setdefault((device, level), count())
        return 1 + level * STREAMS_PER_LEVEL + next(turn) % STREAMS_PER_LEVEL


def check_stream(name: str, stream: object) -> Stream:
    """``stream``, if it is one."""
    if not isinstance(stream, Stream):
        raise ArgumentTypeError(f"{name}: expected a Stream, not {type(stream).__name__}")
    return stream


class StreamContext:
    """Makes a stream the current one of its GPU within the block; does nothing for None."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = None if stream is None else check_stream("stream", stream)

    def __enter__(self) -> None:
        if self.stream is not None:
            self._previous = _current_number(self.stream._device)
            _set_current(self.stream._device, self.stream._number)

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            _set_current(self.stream._device, self._previous)


def stream(stream: Stream | None) -> StreamContext:
    """A block whose operations run on ``stream``."""
    return StreamContext(stream)


def set_stream(stream: Stream | None) -> None:
    """Make ``stream`` the current one of its GPU, for this thread."""
    if stream is not None:
        chosen = check_stream("set_stream", stream)
        _set_current(chosen._device, chosen._number)


def current_stream(device: Place = None) -> Stream:
    """The stream that this thread's operations run on."""
    name = gpu_of("current_stream", device)
    return Stream(name, _number=_current_number(name))


def default_stream(device: Place = None) -> Stream:
    """The stream that operations run on where no other was chosen."""
    return Stream(gpu_of("default_stream", device), _number=0)


def _current_number(device: str) -> int:
    return dict(thread.modes.streams).get(device, 0)


def _set_current(device: str, number: int) -> None:
    chosen = {**dict(thread.modes.streams), device: number}
    thread.modes = thread.modes.but(streams=tuple(sorted([(name, n) for name, n in chosen.items() if n])))


def record_stream(self: Tensor, stream: Stream) -> None:
    """Hold the tensor's memory back, once it is freed, until what ``stream`` was given by then is done."""
    check_stream("record_stream", stream)
    if self.device.type != "cuda":
        raise NotSupportedError(f"record_stream: {self._meta} is on {self.device}, which has no streams")
    if self._session is not stream._session or self.device is not stream.device:
        raise DeviceError(f"record_stream: {self._meta} is on {self.device}, the stream on another device or session")
    self._session.submit(RecordStream(self._id, stream._number))


setattr(Tensor, "record_stream", record_stream)  # noqa: B010 - mypy knows no such attribute
