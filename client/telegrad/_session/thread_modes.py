"""The modes that a thread's operations run under: gradient recording, inference mode, autocast, current streams.

As in PyTorch, they belong to a thread. ``Modes`` holds one combination of them. The modes of a thread are attached to
each instruction that it queues (``send_queue``), and where they change between two instructions the server is told: so
a change takes effect between the right two instructions, whichever threads these come from. Knows no sessions.
"""

from __future__ import annotations

import threading
from typing import Any, Final, NamedTuple, TypeAlias

from telegrad_protocol.autocast import DEFAULT_DTYPES, Autocast
from telegrad_protocol.dtypes import DType
from telegrad_protocol.messages import Mode

Streams: TypeAlias = tuple[tuple[str, int], ...]
"""Pairs of a device's name and the number of the stream that is current there; default streams are left out."""


class Modes:
    """What a thread's operations run under; ``of`` gives the one instance of its settings.

    ``streams`` pairs devices with the streams that are current there, where it is not the default one.
    """

    __slots__ = ("autocast", "grad", "inference", "records", "streams")
    _known: dict[tuple[Any, ...], Modes] = {}

    grad: bool
    inference: bool
    records: bool
    autocast: Autocast | None
    streams: Streams

    @staticmethod
    def of(grad: bool, inference: bool, autocast: Autocast | None, streams: Streams) -> Modes:
        """The one instance of these settings."""
        key = (grad, inference, autocast, streams)
        found = Modes._known.get(key)
        if found is None:
            found = Modes._known[key] = object.__new__(Modes)
            found.grad, found.inference, found.autocast, found.streams = key
            found.records = grad and not inference
        return found

    def but(self, **changed: Any) -> Modes:
        """These settings, with some of them changed."""
        settings = {"grad": self.grad, "inference": self.inference, "autocast": self.autocast, "streams": self.streams}
        return Modes.of(**{**settings, **changed})

    def changes_from(self, other: Modes) -> list[Mode]:
        """What to tell a server that has ``other``."""
        found = []
        if self.inference is not other.inference:
            found.append(Mode("inference", self.inference))
        if self.grad is not other.grad:
            found.append(Mode("grad", self.grad))
        if self.autocast is not other.autocast:
            found.append(Mode("autocast", self.autocast.encode() if self.autocast is not None else None))
        if self.streams != other.streams:
            ours, theirs = dict(self.streams), dict(other.streams)
            changed = [name for name in {**theirs, **ours} if ours.get(name, 0) != theirs.get(name, 0)]
            found.extend([Mode("stream", [name, ours.get(name, 0)]) for name in changed])
        return found


DEFAULT: Final = Modes.of(True, False, None, ())


class AutocastSettings(NamedTuple):
    """What a thread has set about autocast, also what is off: by device type, and the depth of regions."""

    dtypes: tuple[tuple[str, DType], ...] = tuple(DEFAULT_DTYPES.items())
    enabled: frozenset[str] = frozenset()
    cache_enabled: bool = True
    depth: int = 0

    @property
    def in_effect(self) -> Autocast | None:
        """What operations run under."""
        return Autocast.of([pair for pair in self.dtypes if pair[0] in self.enabled], self.cache_enabled)


class _ThreadModes(threading.local):
    """The modes of each thread; every thread starts with the defaults."""

    modes: Modes = DEFAULT
    autocast = AutocastSettings()


thread: Final = _ThreadModes()


def set_autocast(settings: AutocastSettings) -> None:
    """Let this thread's operations cast their operands as ``settings`` say."""
    thread.autocast = settings
    thread.modes = thread.modes.but(autocast=settings.in_effect)
