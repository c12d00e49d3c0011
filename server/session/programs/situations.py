"""What decides how a program runs besides its constants: modes, and what its inputs are.

That is found before each run, of some hundreds of inputs, so they are all gone through by functions written in C. Where
most inputs are the same values as in the run before, and autograd was told nothing, what was found of them stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from sys import getrefcount
from typing import Any, Final, NamedTuple
from weakref import ref

from server.allocator import Block
from server.engine import keys
from server.engine.autograd import changes
from server.engine.programs.analysis import shared_memory
from server.engine.programs.described import block_of
from server.engine.value import AutogradMeta, Value
from server.session.state import SessionState
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

_BACKENDS: Final = keys.CPU | keys.CUDA
_ONLY_VALUES: Final = frozenset((Value,))
_NOTHING: Final = frozenset((type(None),))
_MOST_MOVING: Final = 4
_ALONE: Final = 2
"""What Python counts of a storage that one value has: the value, and who asks."""
_meta_of, _autograd_of, _backend_of = attrgetter("meta"), attrgetter("autograd"), attrgetter("backend")
_keys_of, _base_of = attrgetter("keys"), attrgetter("base")
_node_of, _gradient_of, _needs_gradient = attrgetter("grad_fn"), attrgetter("grad"), attrgetter("requires_grad")


class Situation(NamedTuple):
    """What decides how a program runs besides its constants.

    ``tracked`` tells of each input whether autograd knows of it; of those that it knows, ``needs`` tells whether they
    require a gradient, ``histories`` whether something made them (empty if none), ``gradients`` the layouts of their
    gradients (empty if there are none). ``memory`` has a number for each input, and then for each gradient: the same
    where they share memory. Strings of bytes are compared as one.
    """

    modes: tuple[Any, ...]
    metas: tuple[Meta, ...]
    memory: tuple[int, ...]
    tracked: bytes = b""
    needs: bytes = b""
    histories: bytes = b""
    gradients: tuple[Meta | None, ...] = ()


class Standing:
    """The situation that a program was in when it ran last, for as long as it can be told to be the same.

    That can be told while the inputs are the same values, but for a few of the same kind whose memory is no other's,
    and autograd was told nothing since, or by the run alone: what executes a run does the same to gradients each time,
    so that a situation stays which was found again after it. Values are not kept alive for it.
    """

    __slots__ = (
        "_blocks", "_changes", "_dead", "_ended", "_found", "_last", "_modes", "_moving", "_numbers",
        "_numbers_still", "_references", "_settled", "_still", "_tracked",
    )  # fmt: skip

    def __init__(self) -> None:
        self._numbers: list[int] = []
        """The identities of the inputs of the run before."""
        self._found: Situation | None = None
        self._modes: Any = None
        self._changes = -1
        self._still: Callable[[Sequence[Any]], tuple[Any, ...]] = tuple
        """Gives what belongs to inputs that are the same values each time."""
        self._numbers_still: tuple[int, ...] = ()
        self._moving: list[tuple[int, Meta]] = []
        """Places of inputs that are other values each time, and what these have to be."""
        self._blocks: frozenset[Block] = frozenset()
        """The memory of the inputs that are the same values each time."""
        self._references: list[Any] = []
        """Of these inputs: another value may have the identity of one that is gone."""
        self._dead: list[Any] = []
        self._tracked: list[int] = []
        """Places of inputs that autograd knows of."""
        self._last: Situation | None = None
        """The situation of the run before."""
        self._ended: Any = None
        """What has executed that run, and has changed gradients; nothing else has told autograd anything since."""
        self._settled: Any = None
        """What leaves the situation as it was found."""

    def note_end(self, variant: Any, changed: int) -> None:
        """Note that the run whose situation was asked for last has ended, and has changed so many gradients itself."""
        self._ended = None
        if changed and changes.count == self._changes + changed:
            self._ended, self._changes = variant, changes.count

    def of(self, state: SessionState, values: Sequence[Any], has_passes: bool) -> Situation | None:
        """Return the situation of a run on these inputs, as ``situation`` does."""
        modes = None if state.context.checks.outstanding else modes_of(state)
        if modes is None:
            return None
        numbers = list(map(id, values))
        ended, self._ended = self._ended, None
        is_alike = self._found is not None and modes == self._modes and ended is self._settled
        if is_alike and self._is_same(values, numbers):
            return self._found
        found = situation(state, values, has_passes)
        self._found = self._settled = None
        if found is not None and self._repeats(values, numbers):
            self._found, self._modes = found, modes
            self._settled = ended if found == self._last else None
        self._numbers, self._changes, self._last = numbers, changes.count, found
        return found

    def _is_same(self, values: Sequence[Any], numbers: list[int]) -> bool:
        """Return whether these inputs are in the same situation as those for which it was noted."""
        if self._changes != changes.count or self._dead:
            return False
        if not self._moving:
            return numbers == self._numbers
        # An input that moves is nobody's here, so that another one may have the number of one that is gone.
        return self._still(numbers) == self._numbers_still and self._may_move(values)

    def _may_move(self, values: Sequence[Any]) -> bool:
        blocks, has_views = set(), False
        for place, meta in self._moving:
            value = values[place]
            if value.__class__ is not Value or value.meta is not meta or value.autograd is not None:
                return False
            blocks.add(value.storage.block)
            has_views = has_views or getrefcount(value.storage) > _ALONE or value.storage.keeper is not None
        return len(blocks) == len(self._moving) and not (has_views and self._is_shared(blocks, values))

    def _is_shared(self, blocks: set[Block], values: Sequence[Any]) -> bool:
        """Return whether one of these is the memory of an input that stays, or of a gradient."""
        gradients = [values[place].autograd.grad for place in self._tracked]
        blocks_of_gradients = [block_of(one) for one in gradients if one is not None]
        return not (blocks.isdisjoint(self._blocks) and blocks.isdisjoint(blocks_of_gradients))

    def _repeats(self, values: Sequence[Value], numbers: list[int]) -> bool:
        """Note most of these inputs, where they are those of the run before; returns whether they are."""
        before = self._numbers
        if self._changes != changes.count or len(before) != len(numbers):
            return False
        still = [place for place, number in enumerate(numbers) if number == before[place]]
        moving = [place for place, number in enumerate(numbers) if number != before[place]]
        known = list(map(_autograd_of, values))
        self._tracked = [place for place, meta in enumerate(known) if meta is not None]
        gradients = [meta.grad for meta in known if meta is not None]
        blocks = list(map(block_of, values))
        apart = [*blocks, *[block_of(one) for one in gradients if one is not None]]
        if moving and not (len(set(apart)) == len(apart) and _can_move(values, moving)):
            return False
        self._moving = [(place, values[place].meta) for place in moving]
        self._still = itemgetter(*still) if len(still) > 1 else _those_in(still)
        self._numbers_still = self._still(numbers)
        self._blocks = frozenset(self._still(blocks))
        self._dead = []
        note_death = self._dead.append
        self._references = [ref(values[place], note_death) for place in still]
        return True


def _those_in(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what takes the items in these places, however few they are."""
    return lambda items: tuple([items[place] for place in places])


def modes_of(state: SessionState) -> tuple[Any, ...] | None:
    """Return the modes that decide how work is executed; None where it has to be step by step.

    A profile shows what is executed anyway, so it is no such mode, unless all that it can tell is what came between two
    operations.
    """
    current = state.context
    if current.profiler is not None and not current.profiler.notes_stretches:
        return None
    if (
        current.trace is not None or state.histories or current.own_streams.left_default or current.casts
        or current.recorder is not None
    ):  # fmt: skip
        return None
    return (
        current.excluded, current.included & ~keys.PROFILER, current.inference, current.autocast, current.switches,
        current.cudnn, dtypes._default,
    )  # fmt: skip


def situation(state: SessionState, values: Sequence[Any], has_passes: bool) -> Situation | None:
    """Return what decides how a program runs on these inputs, besides its constants.

    None where the instructions have to be executed: the values have a history that a backward pass of the program would
    go through, or are on several devices, or work has to be done step by step.
    """
    current = state.context
    modes = None if current.checks.outstanding else modes_of(state)
    if modes is None:
        return None
    if values and not (_ONLY_VALUES.issuperset(map(type, values)) and _are_on_one_device(values)):
        return None
    metas = tuple(map(_meta_of, values))
    known = list(map(_autograd_of, values))
    tracked = list(filter(None, known))
    if not tracked:
        return Situation(modes, metas, shared_memory(values))
    nodes, gradients = list(map(_node_of, tracked)), list(map(_gradient_of, tracked))
    has_nodes = nodes.count(None) < len(nodes)
    if (has_nodes and has_passes) or _has_tracked_views(values, known):
        return None
    which, needs = bytes(map(bool, known)), bytes(map(_needs_gradient, tracked))
    histories = bytes([node is not None for node in nodes]) if has_nodes else b""
    given = [gradient for gradient in gradients if gradient is not None]
    kinds = tuple([None if one is None else one.meta for one in gradients]) if given else ()
    return Situation(modes, metas, shared_memory([*values, *given]), which, needs, histories, kinds)


def _can_move(values: Sequence[Value], places: Sequence[int]) -> bool:
    """Return whether the inputs in these places are few and unknown to autograd."""
    return len(places) <= _MOST_MOVING and all([values[place].autograd is None for place in places])


def _are_on_one_device(values: Sequence[Value]) -> bool:
    return len(set(map(_backend_of, values))) == 1 and all([keys & _BACKENDS for keys in set(map(_keys_of, values))])


def _has_tracked_views(values: Sequence[Value], known: Sequence[AutogradMeta | None]) -> bool:
    """Return whether a value that requires a gradient is a view; ``known`` is autograd's part of each value."""
    bases = list(map(_base_of, values))
    if _NOTHING.issuperset(map(type, bases)):  # values compare their elements, not themselves
        return False
    return any([base is not None and meta is not None and meta.requires_grad for base, meta in zip(bases, known)])
