"""Is told what happens to sessions, workers and requests, and makes of it metrics, lines of the log, and traces."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from server.gateway.workers.events import WatchdogAction
from server.ipc.measures import Notice, SlowTurn
from telegrad_protocol.errors import TelegradError

from .metrics import Metrics
from .tracing import Tracing

LINES_AT_ONCE: Final = 20
LINES_A_SECOND: Final = 1.0
"""How many failures and slow turns of one session are logged; the next line tells how many were left out."""
REMEMBERED: Final = 256
"""So many sessions that have ended are remembered."""
REJECTIONS: Final = {
    "AuthenticationError": "authentication", "NotAllowedError": "permission", "OutOfMemoryError": "memory",
    "LimitExceededError": "limit",
}  # fmt: skip
"""Why something was refused, by class of error, where that tells it."""
_GRAVE: Final = {"InternalError": logging.ERROR, "AcceleratorError": logging.ERROR, "ExtensionError": logging.WARNING}
_GRAVE.update(dict.fromkeys(("OutOfMemoryError", "LimitExceededError"), logging.WARNING))

log = logging.getLogger("server.failures")


class SessionShown(Protocol):
    """What is shown of a session."""

    number: int
    id: str
    tenant: str


class Allowance:
    """How many lines a session may still cause: ``LINES_AT_ONCE``, and more with time."""

    def __init__(self) -> None:
        self._left, self._since = float(LINES_AT_ONCE), time.monotonic()
        self.left_out = 0
        """Failures and slow turns since the last line that has none."""

    def take(self, count: int) -> bool:
        """Whether there may be a line, which tells of ``count`` failures; they are left out where not."""
        now = time.monotonic()
        self._left = min(LINES_AT_ONCE, self._left + (now - self._since) * LINES_A_SECOND)
        self._since = now
        if self._left < 1:
            self.left_out += count
            return False
        self._left -= 1
        return True


class _Record:
    """What is kept of a session while it is open, and for a while after: not the session, which has large buffers."""

    __slots__ = ("allowance", "attachment", "id", "tenant")

    def __init__(self, session: SessionShown) -> None:
        self.id, self.tenant, self.allowance, self.attachment = session.id, session.tenant, Allowance(), 0


class Observer:
    """Counts and tells what happens; a ``WorkerEvents``."""

    def __init__(self, metrics: Metrics, tracing: Tracing) -> None:
        self.metrics, self.tracing = metrics, tracing
        self._records: dict[int, _Record] = {}
        self._ended: deque[int] = deque()
        """Sessions that have ended lately: what a worker tells of their end may come later than the end."""

    def opened(self, session: SessionShown) -> None:
        """A session was opened."""
        self._records[session.number] = _Record(session)

    def connected(self, session: Any) -> None:
        """A client has connected to a session's stream; again, if its attachment had a connection before."""
        record = self._records.get(session.number)
        if record is None:
            return
        if record.attachment == session.hello.attachment:
            self.metrics.reconnects.labels(session.tenant).inc()
            logging.getLogger("server.access").info(
                "client reconnected", extra={"tenant": session.tenant, "session": session.id}
            )
        record.attachment = session.hello.attachment

    def lost(self, session: SessionShown, error: TelegradError) -> None:
        """A session has ended because of a crash, a limit or a defect."""
        self.metrics.sessions_lost.labels(error.code, session.tenant).inc()

    def ended(self, session: SessionShown, reason: str) -> None:
        """A session has ended, for whatever reason."""
        self._ended.append(session.number)
        if len(self._ended) > REMEMBERED:
            self._records.pop(self._ended.popleft(), None)
        self.tracing.session_ended(session.id, reason)

    def noticed(self, worker: int, notices: Sequence[Notice]) -> None:
        """A worker tells what has happened in it."""
        for notice in notices:
            record = self._records.get(notice.session)
            if record is not None:
                self._note(worker, record, notice)

    def watchdog_acted(self, worker: int, action: WatchdogAction, session: int) -> None:
        """The watchdog has ended a turn or a worker."""
        self.metrics.watchdog.labels(str(worker), action).inc()

    def refused(self, tenant: str, code: str, rejection: str = "", source: str = "http", count: int = 1) -> None:
        """A request or an instruction of a tenant has failed; ``rejection`` says why it was refused, if it was."""
        self.metrics.failures.labels(code, tenant, source).inc(count)
        reason = rejection or REJECTIONS.get(code)
        if reason:
            self.metrics.rejections.labels(reason, tenant).inc(count)

    def _note(self, worker: int, record: _Record, notice: Notice) -> None:
        about = {"tenant": record.tenant, "session": record.id, "worker": worker}
        about |= {"operation": notice.operation, "site": notice.site}
        if isinstance(notice, SlowTurn):
            if self._write(logging.INFO, record, "turn was slow", about | {"seconds": round(notice.seconds, 6)}):
                self.tracing.turn(record.id, notice)
            return
        self.refused(record.tenant, notice.code, source="stream", count=notice.count)
        about |= {"code": notice.code, "reason": notice.message, "operands": notice.operands, "count": notice.count}
        event = "session ended by a failure" if notice.ends else "instruction failed"
        if self._write(_GRAVE.get(notice.code, logging.INFO), record, event, about, notice.count):
            self.tracing.failure(record.id, notice)

    def _write(self, level: int, record: _Record, event: str, about: dict[str, Any], count: int = 1) -> bool:
        """Write a line, unless the session has caused too many; whether it was written."""
        if not record.allowance.take(count):
            return False
        left_out, record.allowance.left_out = record.allowance.left_out, 0
        log.log(level, event, extra=about | ({"left_out": left_out} if left_out else {}))
        return True
