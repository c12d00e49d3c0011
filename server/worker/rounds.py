"""Rounds of turns: who has work, who is granted a turn, and what turns have cost. Knows no sockets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from .connection import BUSY, WAITING, SessionConnection
from .shares import LONG_SECONDS, Share, grant


class Rounds:
    """What is shared in the present round, and what turns have used so far beside other sessions."""

    def __init__(self, device_times: list[float]) -> None:
        """``device_times`` takes for how long devices were seen at the work of sessions, turn by turn."""
        self._device_times = device_times
        self._tenants: dict[str, Share] = {}
        self.are_shared = self.do_tenants_share = False
        """Whether several sessions are active, and whether sessions of several tenants have work."""
        self.held_seconds = 0.0
        """For how long all sessions that have work are held back."""
        self._processor_seconds = self._used_seconds = 0.0
        """The processor time when the last turn ended, and what turns have used of it."""
        self._taken = self._longest = self._given = 0.0
        """Of the present turn: processor seconds before it let others through, the most without a break, and seconds
        that others had of it."""

    def share_of(self, tenant: str) -> Share:
        """The share of a tenant."""
        return self._tenants.setdefault(tenant, Share())

    def begin(self, connections: Iterable[SessionConnection]) -> None:
        """Say who may have a turn."""
        self._processor_seconds = time.process_time()
        busy: list[SessionConnection] = []
        quiet: list[SessionConnection] = []
        is_waiting = False
        for connection in connections:
            connection.is_granted = True
            (busy if connection.activity == BUSY else quiet).append(connection)
            is_waiting = is_waiting or connection.activity == WAITING
        held = grant(busy, quiet, time.perf_counter(), self._used_seconds) if busy else None
        self.held_seconds = 0.0 if is_waiting else held or 0.0
        self.do_tenants_share = len({connection.tenant_share for connection in busy}) > 1
        self.are_shared = held is not None

    def note_break(self) -> None:
        """Note that others could have been let through, in the middle of the present turn."""
        before, self._processor_seconds = self._processor_seconds, time.process_time()
        part = self._processor_seconds - before
        self._taken += part
        self._longest = max(self._longest, part)

    @contextmanager
    def interlude(self) -> Iterator[None]:
        """Charge what is done in this block to others than who has the present turn."""
        begin = time.perf_counter()
        self.note_break()
        turn = self._taken, self._longest, self._given
        self._taken = self._longest = self._given = 0.0
        try:
            yield
        finally:
            self._taken, self._longest, self._given = turn
            self._given += time.perf_counter() - begin
            self._processor_seconds = time.process_time()

    def charge(self, connection: SessionConnection, begin: float, others: Iterable[SessionConnection]) -> None:
        """Charge a turn, which began at this time, to who had it and to its tenant."""
        now = time.perf_counter()
        host, device = now - begin - self._given, connection.session.take_device_seconds()
        if device:
            self._device_times.append(device)
        self.note_break()
        # Other processes may have kept the turn waiting, and several threads may have worked at once.
        taken, longest = min(self._taken, host), min(self._longest, host)
        self._taken = self._longest = self._given = 0.0
        self._used_seconds += taken
        tenant = connection.tenant_share
        for share in (connection.share, tenant):
            share.charge(host, device, taken, now, connection.activity == BUSY)
            if self.are_shared and longest > LONG_SECONDS:  # though it was to end, or to let others through
                share.hold(longest, now, self._used_seconds)
        if self.do_tenants_share and tenant.credit <= 0.0:  # its other sessions have to wait for the next round
            for other in others:
                other.is_granted = other.is_granted and other.tenant_share is not tenant


def light_first(connections: Sequence[SessionConnection]) -> list[SessionConnection]:
    """Those that make short round trips, then the others, each in their order."""
    return sorted(connections, key=lambda connection: not connection.share.is_light)
