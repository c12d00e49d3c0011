"""Who may use the worker's time next: tenants share it, and the sessions of a tenant share its part. Knows no sockets.

While several have work, each is granted a slice, and a turn costs what it has taken of the host and of the device. Who
has used up more than its slice is passed over in as many rounds. Who makes short round trips waits for no round, since
that takes little of the slices of others.

An instruction cannot be ended after a slice. So who has sent one that took much longer is held back while a neighbour
makes short round trips, also in the moments in which that neighbour has nothing to do, since otherwise every one of its
trips would meet such an instruction. It ends when the neighbours have used a multiple of that time, or a larger
multiple of it has passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

SLICE_SECONDS: Final = 0.002
"""How long a session works before another one that has work is given a turn, if its instructions allow it."""
LONG_SECONDS: Final = 2 * SLICE_SECONDS
"""Who works longer without a break, though the turn was to end with its slice, has had a long instruction."""
TRIP_SECONDS: Final = SLICE_SECONDS / 4
"""A turn that takes less of the processor, and leaves nothing to do, is a short round trip."""
ACTIVE_SECONDS: Final = 0.01
"""For so long after a short round trip a session counts as active, with nothing to do: its client may ask again."""
PATIENT_SECONDS: Final = 5 * ACTIVE_SECONDS
"""For so long where its client usually asks again sooner: it may have to wait for a processor."""
USED_FACTOR: Final = 2.0
"""The neighbours' use of the processor that ends a hold, as a multiple of what the instruction took."""
HOLD_FACTOR: Final = 15.0
"""The time that ends a hold, as a multiple of what the instruction took."""
LONGEST_HOLD: Final = 1.0
"""Seconds for which a session is held back at most."""
MOST_OWED: Final = 1.0
"""Seconds that a session can have used beyond its slices; more is forgiven."""
_RECENT: Final = 0.1
"""The part that the last turn has in the average."""


class Share:
    """What a tenant, or a session, has used of its part of the time.

    ``credit`` are seconds that it may use while others have work, below 0 where it has used more, and ``active`` is
    when it had its last turn.
    """

    __slots__ = ("_held_until", "_held_used", "_pause", "_trips", "active", "credit")

    def __init__(self) -> None:
        self.credit = SLICE_SECONDS
        self.active, self._trips = 0.0, 1.0
        self._held_until = self._held_used = self._pause = 0.0

    def charge(self, host: float, device: float, taken: float, now: float, has_more: bool) -> None:
        """Note a turn that has ended ``now``, and took so many seconds of the host and of the device.

        ``taken`` are seconds of the processor: a turn may take long because of other processes. ``has_more`` says
        whether work is left.
        """
        self._trips += ((taken < TRIP_SECONDS and not has_more) - self._trips) * _RECENT
        self._pause += (min(now - host - self.active, PATIENT_SECONDS) - self._pause) * _RECENT
        self.active = now
        self.credit = max(self.credit - host - device, -MOST_OWED)

    def hold(self, seconds: float, now: float, used: float) -> None:
        """Note an instruction that has taken so many seconds.

        ``used`` is for how many seconds sessions have used the processor since the worker started.
        """
        self._held_until = now + min(HOLD_FACTOR * seconds, LONGEST_HOLD)
        self._held_used = used + USED_FACTOR * seconds

    def is_held(self, now: float, used: float) -> bool:
        """Whether it is to be held back where others make short round trips."""
        return now < self._held_until and used < self._held_used

    @property
    def is_light(self) -> bool:
        """Whether its turns lately were short round trips."""
        return self._trips > 0.5

    def makes_trips(self, now: float) -> bool:
        """Whether it makes short round trips, and is likely to go on with it soon where it has no work."""
        patience = PATIENT_SECONDS if self._pause < ACTIVE_SECONDS else ACTIVE_SECONDS
        return self._trips > 0.5 and now - self.active < patience

    def seconds_held(self, now: float) -> float:
        """For how long it may be held back from now on."""
        return max(self._held_until - now, 0.0)


class Sharer(Protocol):
    """A session as it is seen here; ``is_granted`` says whether it may have a turn in this round."""

    share: Share
    tenant_share: Share
    is_granted: bool


def grant(busy: Collection[Sharer], quiet: Iterable[Sharer], now: float, used: float) -> float | None:
    """Say of each session that has work whether it may have a turn; ``quiet`` are the others, ``used`` as in ``hold``.

    None is returned where nobody has to share. Otherwise it is after how many seconds to look again, where all that
    have work are held back, and else 0.
    """
    active = [sharer for sharer in quiet if sharer.share.makes_trips(now)]
    if len(busy) + len(active) < 2:
        return None
    present = [*busy, *active]
    tenants = _granted({s.tenant_share for s in busy}, {s.tenant_share for s in present}, now, used)
    shares: set[Share] = set()
    for tenant in tenants:
        theirs = {s.share for s in busy if s.tenant_share is tenant}
        shares |= _granted(theirs, {s.share for s in present if s.tenant_share is tenant}, now, used)
    for sharer in busy:
        sharer.is_granted = sharer.share in shares
    if shares:
        return 0.0
    held = min([max(s.share.seconds_held(now), s.tenant_share.seconds_held(now)) for s in busy])
    return min(held, ACTIVE_SECONDS)


def may_pass(sharer: Sharer, do_tenants_share: bool) -> bool:
    """Whether a session that has become ready may have a turn before those whose round it is."""
    share, tenant = sharer.share, sharer.tenant_share
    return share.is_light and (not do_tenants_share or tenant.credit > 0.0)


def _is_protected(share: Share, is_busy: bool, now: float, used: float) -> bool:
    """Whether others are held back for it: it makes short round trips, and its client is at one or is likely to be."""
    return (share.is_light if is_busy else share.makes_trips(now)) and not share.is_held(now, used)


def _granted(busy: set[Share], present: set[Share], now: float, used: float) -> set[Share]:
    """Of those that have work, those that may have a turn: of the tenants, or of the sessions of one tenant."""
    if len(present) < 2:
        return busy
    candidates = busy
    if any([_is_protected(share, share in busy, now, used) for share in present]):
        candidates = {share for share in busy if not share.is_held(now, used)}
        if not candidates:
            return candidates
    highest = max([share.credit for share in candidates])
    if highest <= 0.0:
        for share in present:
            share.credit = min(share.credit + SLICE_SECONDS - highest, SLICE_SECONDS)
    return {share for share in candidates if share.credit > 0.0 or share.is_light}
