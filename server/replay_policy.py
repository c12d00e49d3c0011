"""When to learn what a program repeats, when to trust it, and when to give up: one policy for every mechanism.

A *sighting* is the first occurrence of a piece of work; it is only noted. At the second one a mechanism *records* the
work, or *captures* it as a CUDA graph, and *replays* it from then on. Work that is recognised is a *hit*, work that is
not is a *miss*. Misses, or captures, spend a *budget* and hits earn it back; without a budget a mechanism does nothing
until a *cooldown* is over, or for good where there is none. Work that differs from its record while it is replayed is a
*replay mismatch*: it is done in the ordinary way. ``docs/replay.md`` explains what each mechanism recognises.

Imports nothing of the project, because the allocator and the engine both build on it. Hits are counted in bulk by the
mechanisms themselves and handed over with the next miss, so that no replayed operation calls anything here.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Limits(NamedTuple):
    """One mechanism's parameters. Budget, costs and gains have no unit but each other."""

    budget: int
    """What may be spent before the mechanism gives up."""
    cost: int
    """What a miss spends, or a capture where a miss alone costs nothing."""
    gain: int
    """What a hit earns back."""
    saves: bool
    """Whether hits are saved up beyond a full budget."""
    largest_budget: int = 0
    """Each time that the mechanism gives up, the next budget is twice as large, up to this."""
    cooldown: int = 0
    """How many events the first cooldown lasts; 0: the mechanism gives up for good."""
    longest_cooldown: int = 0
    """Each cooldown is twice as long as the last one, up to this."""
    proof: int = 1
    """So many hits between two misses set budget and cooldown back to their first values."""
    sightings: int = 0
    """How many pieces of work that occurred once are remembered; beyond that all are forgotten."""
    records: int = 0
    """How many records or captures are kept."""


LAUNCH_WAITING = Limits(
    budget=512,  # sequences of launches in a row of which none is replayed: several steps of a large model
    cost=1,
    gain=512,  # one hit pays for everything: waiting costs little
    saves=False,
    cooldown=64,  # flushes, of which a training step has a few
    longest_cooldown=8192,  # flushes; a program that never repeats itself pays for one trial in so many
)
"""`LaunchQueue`: whether launches wait for each other at all."""

LAUNCH_SEQUENCES = Limits(
    budget=1024,  # a fresh device may capture as many sequences as it keeps before one of them was replayed
    cost=4,  # a capture takes the host about as long as four replays save
    gain=1,
    saves=False,  # a program that has repeated itself for hours may become one that does not
    sightings=1 << 14,  # hashes of sequences with what these have cost, about 2 MiB
    records=256,  # CUDA graphs; a step of a large model has a few dozen sequences
)
"""`LaunchSequences`: whether a sequence of launches is captured as a CUDA graph."""

BACKWARD_PROGRAMS = Limits(
    budget=32,  # passes that begin alike and are different graphs, before hits must outnumber misses
    cost=1,
    gain=1,
    saves=True,  # recording a pass is cheap, so a long history of hits may pay for a new phase of training
    sightings=256,  # beginnings of passes, each with its programs
    records=32,  # programs of one beginning; a loop over views of a tensor needs one per view
)
"""`ProgramTree`: whether a backward pass is looked for among recorded ones, and recorded if it is new."""

BACKWARD_CAPTURES = Limits(
    budget=32,  # eight captures before one of them must have been replayed
    cost=4,  # a capture costs about as much as four replays save
    gain=1,
    saves=True,
    sightings=64,  # states of memory in which a pass was made once
    records=8,  # CUDA graphs of one program: a loop may alternate between a few addresses
)
"""`BackwardCaptures`: whether a backward pass is captured as a CUDA graph."""

PROGRAM_CAPTURES = Limits(
    budget=64,  # sixteen captures before one of them must have been launched
    cost=4,  # a capture costs about as much as four launches save
    gain=1,
    saves=True,
    sightings=64,  # states of memory in which a program was executed once
    records=8,  # CUDA graphs of one program: a loop may alternate between a few addresses
)
"""`Captures`: whether an execution of a program is captured as a CUDA graph."""

RECURRING_BATCHES = Limits(
    budget=1024,  # batches in a row that came for the first time: a few passes over what is new in each
    cost=1,
    gain=4,  # to look at a batch that did not come before costs about a quarter of what one saves that did
    saves=False,
    cooldown=1024,  # batches
    longest_cooldown=8192,
    sightings=1024,  # batches of at most 16 KiB
    records=1024,  # patterns; a hundred decoded tokens are some four hundred batches
)
"""`RecurringBatches`: whether batches are looked for among earlier ones."""

ALLOCATOR_CALLS = Limits(
    budget=3 << 11,  # 2,048 states that are new without a hit: two steps of a training are learnt from at once
    cost=3,  # to note a state costs less than a remembered call saves, but most are never seen again
    gain=1,
    saves=False,
    largest_budget=3 << 18,  # a hundred decoded tokens have 38,000 states, each learnt from twice
    cooldown=8 << 11,  # calls; eight times as many as were tried, so that trials cost a ninth at most
    longest_cooldown=8 << 18,
    proof=4097,  # calls; a full log of `Recall`, in which all calls of a step were hits
    sightings=1 << 17,  # states, and as many pieces of memory; about 100 bytes each
)
"""`Recall`: whether the allocator remembers where calls lead."""

IDLE_WINDOW = 4
"""Sequences that may be captured after a device was last seen idle: a busy one gains nothing from a faster host."""
REFUND = 64
"""What `LaunchSequences` gets back when a cooldown of `LaunchQueue` ends: sixteen captures for what may be new work."""


class ReplayPolicy:
    """Spends and earns one mechanism's budget. ``hits``, ``misses`` and ``cooldowns`` count what has happened."""

    __slots__ = ("_budget", "_limits", "_next_cooldown", "_spent", "cooldown", "cooldowns", "hits", "misses")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._budget = limits.budget
        self._next_cooldown = limits.cooldown
        self._spent = 0
        self.cooldown = 0
        """How many events are left of the present cooldown; 0 if there is none."""
        self.hits = self.misses = self.cooldowns = 0

    def can_afford(self) -> bool:
        """Whether the budget has room for one more miss or capture."""
        return self._spent + self._limits.cost <= self._budget

    def hit(self, count: int) -> None:
        """Count hits, all those since the last miss at once."""
        limits = self._limits
        self.hits += count
        self.refund(count * limits.gain)
        if count >= limits.proof:
            self._budget, self._next_cooldown = limits.budget, limits.cooldown

    def room(self) -> int:
        """Return how many misses in a row it takes until the mechanism must give up, one at least."""
        return max(1, -(-(self._budget - self._spent) // self._limits.cost))

    def miss(self, count: int = 1) -> bool:
        """Count misses or captures; returns whether the mechanism must give up now, for ``cooldown`` events if any."""
        limits = self._limits
        self.misses += count
        self._spent += count * limits.cost
        if self._spent < self._budget:
            return False
        if self._next_cooldown:
            self.cooldowns += 1
            self.cooldown = self._next_cooldown
            self._next_cooldown = min(2 * self._next_cooldown, limits.longest_cooldown)
            self._budget = max(self._budget, min(2 * self._budget, limits.largest_budget))
            self._spent = 0
        return True

    def begin_anew(self) -> None:
        """End a cooldown, and forget the ones before: what comes is not what repeated nothing."""
        self._budget, self._next_cooldown = self._limits.budget, self._limits.cooldown
        self._spent = self.cooldown = 0

    def trust(self, share: int = 1) -> None:
        """Let as much be spent as ever may be, or a share of it: there are signs that what comes has come before."""
        self._budget = max(self._budget, self._limits.largest_budget // share)

    def cool_down(self) -> bool:
        """Count one event of a cooldown; returns whether that was the last."""
        self.cooldown -= 1
        return not self.cooldown

    def refund(self, amount: int) -> None:
        """Give back a part of what was spent."""
        self._spent -= amount
        if self._spent < 0 and not self._limits.saves:
            self._spent = 0


class Sightings:
    """Pieces of work that occurred once, by a hashable key, each in a certain state of the world."""

    __slots__ = ("_limit", "_states")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._states: dict[Any, Any] = {}

    def repeats(self, key: Any, state: Any = True) -> bool:
        """Whether this work occurred before, in the very same state; notes it if not."""
        if self._states.get(key) is state:
            return True
        if len(self._states) >= self._limit:
            self._states.clear()
        self._states[key] = state
        return False
