"""The modes that a thread's operations run under: gradient recording, inference mode, autocast, streams, devices.

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
from telegrad_protocol.meta import Device

Streams: TypeAlias = tuple[tuple[str, int], ...]
"""Pairs of a device's name and the number of the stream that is current there; default streams are left out."""


class Modes:
    """One combination of modes that operations run under. Equal combinations are the same object: ``of`` sees to it.

    ``gpu`` is the thread's current GPU, None where it has chosen none; ``default_device`` is where a ``with`` block
    has tensors made. Both are the client's alone: an instruction names its device. ``records`` tells whether operations
    are recorded for differentiation, given ``grad`` and ``inference``. ``of_plans`` are the modes that the results of a
    call depend on, all others being default ones: a part of the keys that plans of calls are cached by.
    """

    __slots__ = ("autocast", "default_device", "gpu", "grad", "inference", "of_plans", "records", "streams")
    _known: dict[tuple[Any, ...], Modes] = {}

    grad: bool
    inference: bool
    records: bool
    autocast: Autocast | None
    streams: Streams
    gpu: Device | None
    default_device: Device | None
    of_plans: Modes

    @staticmethod
    def of(
        grad: bool, inference: bool, autocast: Autocast | None, streams: Streams, gpu: Device | None,
        default_device: Device | None,
    ) -> Modes:  # fmt: skip
        """Return the one instance of these modes."""
        key = (grad, inference, autocast, streams, gpu, default_device)
        modes = Modes._known.get(key)
        if modes is None:
            modes = object.__new__(Modes)
            modes.grad, modes.inference, modes.autocast, modes.streams, modes.gpu, modes.default_device = key
            modes.records = grad and not inference
            plain = (True, False, autocast, (), gpu, default_device)
            modes.of_plans = modes if key == plain else Modes.of(*plain)
            modes = Modes._known.setdefault(key, modes)
        return modes

    def but(self, **changed: Any) -> Modes:
        """Return these modes with some of them changed."""
        settings = {
            "grad": self.grad, "inference": self.inference, "autocast": self.autocast, "streams": self.streams,
            "gpu": self.gpu, "default_device": self.default_device,
        }  # fmt: skip
        return Modes.of(**{**settings, **changed})

    def changes_from(self, other: Modes) -> list[Mode]:
        """Return the instructions that bring a server from ``other`` to these modes."""
        changes = []
        if self.inference is not other.inference:
            changes.append(Mode("inference", self.inference))
        if self.grad is not other.grad:
            changes.append(Mode("grad", self.grad))
        if self.autocast is not other.autocast:
            changes.append(Mode("autocast", self.autocast.encode() if self.autocast is not None else None))
        if self.streams != other.streams:
            ours, theirs = dict(self.streams), dict(other.streams)
            changed = [name for name in {**theirs, **ours} if ours.get(name, 0) != theirs.get(name, 0)]
            changes.extend([Mode("stream", [name, ours.get(name, 0)]) for name in changed])
        return changes


DEFAULT: Final = Modes.of(True, False, None, (), None, None)


class AutocastSettings(NamedTuple):
    """What a thread has chosen about autocast.

    ``dtypes`` has for every type of device the dtype that operations would be cast to, ``enabled`` the types where
    they are. ``depth`` is the number of nested regions; ``cache_enabled`` keeps casts of weights until the outermost
    one ends.
    """

    dtypes: tuple[tuple[str, DType], ...] = tuple(DEFAULT_DTYPES.items())
    enabled: frozenset[str] = frozenset()
    cache_enabled: bool = True
    depth: int = 0

    @property
    def in_effect(self) -> Autocast | None:
        """Return what operations run under: None where autocast is on for no device."""
        return Autocast.of([pair for pair in self.dtypes if pair[0] in self.enabled], self.cache_enabled)


class _ThreadModes(threading.local):
    """The modes of each thread; every thread starts with the defaults."""

    modes: Modes = DEFAULT
    autocast = AutocastSettings()
    entered: tuple[Device | None, ...] = ()
    """The default devices that ``with`` blocks of devices replaced, the innermost block's last."""


thread: Final = _ThreadModes()


def set_autocast(settings: AutocastSettings) -> None:
    """Let this thread's operations cast their operands as ``settings`` say."""
    thread.autocast = settings
    thread.modes = thread.modes.but(autocast=settings.in_effect)
