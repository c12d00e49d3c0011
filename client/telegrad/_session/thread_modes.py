"""The modes that a thread's operations run under: gradient recording, inference mode, autocast, streams, devices.

As in PyTorch, they belong to a thread. A thread has a number, which the server is told like a mode, so that a failure
stops this thread's instructions alone. ``Modes`` holds one combination of them. The modes of a thread are attached to
each instruction that it queues (``send_queue``), and where they change between two instructions the server is told: so
a change takes effect between the right two instructions, whichever threads these come from. Knows no sessions.
"""

from __future__ import annotations

import threading
import weakref
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from telegrad_protocol.autocast import DEFAULT_DTYPES, Autocast
from telegrad_protocol.dtypes import DType
from telegrad_protocol.messages import Mode
from telegrad_protocol.meta import Device

Streams: TypeAlias = tuple[tuple[str, int], ...]
"""Pairs of a device's name and the number of the stream that is current there; default streams are left out."""


class Modes:
    """One combination of modes that operations of one thread run under.

    Equal combinations of a thread are the same object: ``of`` sees to it. ``thread`` is the thread's number. ``gpu`` is
    its current GPU, None where it has chosen none; ``default_device`` is where a ``with`` block has tensors made;
    ``packs`` tells whether the program packs what operations save. These three are the client's alone: an instruction
    names its device. ``records`` tells whether operations are recorded for differentiation, given ``grad`` and
    ``inference``. ``of_plans`` are the modes that the results of a call depend on, all others being default ones: a
    part of the keys that plans of calls are cached by, the same for all threads.
    """

    __slots__ = (
        "_known", "autocast", "default_device", "gpu", "grad", "inference", "of_plans", "packs", "records", "streams",
        "thread",
    )  # fmt: skip

    grad: bool
    inference: bool
    autocast: Autocast | None
    streams: Streams
    gpu: Device | None
    default_device: Device | None
    packs: bool

    def __init__(self, thread: int, key: tuple[Any, ...], known: dict[tuple[Any, ...], Modes]) -> None:
        self.thread = thread
        self._known = known
        self.grad, self.inference, self.autocast, self.streams, self.gpu, self.default_device, self.packs = key
        self.records = self.grad and not self.inference
        plain = (True, False, self.autocast, (), self.gpu, self.default_device, self.packs)
        self.of_plans: Modes = self if not thread and key == plain else DEFAULT.of(*plain)

    @staticmethod
    def first(thread: int) -> Modes:
        """Return the modes that a thread begins with."""
        known: dict[tuple[Any, ...], Modes] = {}
        return known.setdefault(_FIRST, Modes(thread, _FIRST, known))

    def of(
        self, grad: bool, inference: bool, autocast: Autocast | None, streams: Streams, gpu: Device | None,
        default_device: Device | None, packs: bool,
    ) -> Modes:  # fmt: skip
        """Return the one instance of these modes in the same thread."""
        key = (grad, inference, autocast, streams, gpu, default_device, packs)
        known = self._known
        return known.get(key) or known.setdefault(key, Modes(self.thread, key, known))

    def but(self, **changed: Any) -> Modes:
        """Return these modes with some of them changed."""
        settings = {
            "grad": self.grad, "inference": self.inference, "autocast": self.autocast, "streams": self.streams,
            "gpu": self.gpu, "default_device": self.default_device, "packs": self.packs,
        }  # fmt: skip
        return self.of(**{**settings, **changed})

    def changes_from(self, other: Modes) -> list[Mode]:
        """Return the instructions that bring a server from ``other`` to these modes."""
        changes = []
        if self.thread != other.thread:
            changes.append(Mode("thread", self.thread))
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


_FIRST: Final = (True, False, None, (), None, None, False)
DEFAULT: Final = Modes.first(0)
"""What the main thread begins with."""


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


_numbers: Final = count(1)
_threads: Final[weakref.WeakValueDictionary[int, threading.Thread]] = weakref.WeakValueDictionary()


def has_ended(number: int) -> bool:
    """Tell whether the thread of this number has ended."""
    running = _threads.get(number)
    return number != 0 and (running is None or not running.is_alive())


class _ThreadModes(threading.local):
    """The modes of each thread; every thread starts with the defaults. The main thread has the number 0."""

    modes: Modes = DEFAULT

    def __init__(self) -> None:
        current = threading.current_thread()
        if current is not threading.main_thread():
            number = next(_numbers)
            _threads[number] = current
            self.modes = Modes.first(number)

    autocast = AutocastSettings()
    entered: tuple[Device | None, ...] = ()
    """The default devices that ``with`` blocks of devices replaced, the innermost block's last."""


thread: Final = _ThreadModes()


def set_autocast(settings: AutocastSettings) -> None:
    """Let this thread's operations cast their operands as ``settings`` say."""
    thread.autocast = settings
    thread.modes = thread.modes.but(autocast=settings.in_effect)
