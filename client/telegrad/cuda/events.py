"""Events of a GPU under ``torch.cuda``'s names: points in the work of streams, and the time between two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from telegrad_protocol.errors import ArgumentError, DeviceError, NotSupportedError
from telegrad_protocol.messages import RecordEvent, WaitEvent
from telegrad_protocol.meta import Device

from .streams import Stream, check_stream, current_stream, gpu_of

if TYPE_CHECKING:
    from telegrad._session.session import Session


class Event:
    """A point in the work of a stream, set by ``record``.

    ``blocking`` says in PyTorch how a thread waits; here the server answers when the device has come that far.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        gpu_of("Event", None)
        if interprocess or external:
            raise NotSupportedError("Event: events are not shared with other processes or captured graphs")
        self._is_timed = bool(enable_timing)
        self._session: Session | None = None
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
        session.submit(RecordEvent(self._id, chosen._device, chosen._number, self._is_timed))

    def wait(self, stream: Stream | None = None) -> None:
        """Let what is submitted to ``stream``, or the current one, from here on wait for this event."""
        chosen = current_stream() if stream is None else check_stream("wait", stream)
        if self._session is None:
            return
        if chosen._session is not self._session:
            raise DeviceError("wait: the event and the stream belong to different sessions")
        chosen._session.submit(WaitEvent(self._id, chosen._device, chosen._number))

    def _check_place(self, name: str, stream: Stream) -> None:
        if stream._session is not self._session:
            raise DeviceError(f"{name}: the event and the stream belong to different sessions")
        if stream._device != self._device:
            raise DeviceError(f"{name}: the event is one of {self._device}, the stream one of {stream._device}")

    def query(self) -> bool:
        """Whether everything before the event has run; also true of one that was never recorded. One round trip."""
        return self._session is None or bool(self._session.query("event_query", self._id))

    def synchronize(self) -> None:
        """Wait until everything before the event has run."""
        if self._session is not None:
            self._session.query("event_synchronize", self._id)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to ``end_event``; waits until both have been reached."""
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
