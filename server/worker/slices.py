"""Whose turn goes on, the timer that ends turns with their slices, and what is done where a turn cannot end.

A turn ends between two instructions, and a backward pass is one instruction that may take many slices. So other
sessions' round trips are let through between two of its steps, and it goes on after them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Final

from server.ipc.heartbeat import BEGIN, SESSION, Heartbeat
from telegrad_protocol.errors import WorkerCrashedError

from .connection import SessionConnection
from .rounds import Rounds
from .shares import SLICE_SECONDS

_TICK_SECONDS: Final = SLICE_SECONDS / 4


class Slices:
    """``has_trips`` says whether other sessions' round trips wait, and ``let_pass`` gives them their turns.

    ``request_pause`` is the host's.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        rounds: Rounds,
        request_pause: Callable[[Callable[[], None]], None],
        has_trips: Callable[[], bool],
        let_pass: Callable[[], None],
    ) -> None:
        self.running: SessionConnection | None = None
        """Whose turn goes on, or was the last."""
        self.crash: WorkerCrashedError | None = None
        """Why no turn may follow, where that has shown in the middle of a pass."""
        self._heartbeat, self._rounds = heartbeat, rounds
        self._request_pause, self._has_trips, self._let_pass = request_pause, has_trips, let_pass
        self._may_tick = self._ticks = self._is_inside = False

    def allow_timer(self) -> None:
        """Take the timer's signal: only the main thread may."""
        signal.signal(signal.SIGALRM, self._ticked)
        signal.siginterrupt(signal.SIGALRM, False)
        self._may_tick = True

    def end_turns(self, ends: bool) -> None:
        """Have turns end with their slices from here on, or not."""
        if ends != self._ticks and self._may_tick:
            self._ticks = ends
            seconds = _TICK_SECONDS if ends else 0.0
            signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    def pause(self) -> None:
        """End the turn that is going on after its present instruction. A signal handler may call this."""
        if self.running is not None:
            self.running.pause()

    def _ticked(self, *_: object) -> None:
        numbers = self._heartbeat.numbers
        if self.running is not None and numbers[SESSION] and time.perf_counter() - numbers[BEGIN] > SLICE_SECONDS:
            self.running.pause()
            if not self._is_inside:
                self._request_pause(self._give_way)

    def _give_way(self) -> None:
        """Let round trips through, in the middle of the instruction that is being executed."""
        connection, numbers = self.running, self._heartbeat.numbers
        if connection is None or not numbers[SESSION] or self._is_inside:
            return
        if not self._has_trips():
            self._rounds.note_break()
            return
        suspended = connection.session.suspend()
        if suspended is None:
            return
        begin, self._is_inside = numbers[BEGIN], True
        try:
            with self._rounds.interlude():
                self._let_pass()
        except WorkerCrashedError as crash:  # the pass must not take it for its own failure
            self.crash = crash
        finally:
            self._is_inside, self.running = False, connection
            numbers[BEGIN], numbers[SESSION] = begin, connection.number
            connection.session.resume(suspended)
        self._heartbeat.check()  # a request to end this turn is not heard in those of others
