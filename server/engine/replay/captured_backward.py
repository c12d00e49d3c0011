"""Replayed passes as one launch: a device that has noted the work of a pass does it again at the same addresses.

Where a training loop repeats itself, its memory does too: the allocator is in the state that it was in, and what the
graph saved lies where it lay. Then the kernels, their order and all their addresses are those of the last pass, and the
device makes them from one launch. The host only does what others can see: leaves get their gradients, nodes let go of
what they saved, the allocator counts the calls that the pass would have made. Whatever differs is left to the program.

A pass is captured when it comes again: it is made as usual, and then gone through once more on echoes of its memory
(`allocator.rehearsal`) while the device notes what it is given and runs none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple

from server.engine import context
from server.engine.autograd.graph import Saved, SavedList
from server.engine.autograd.node import OpNode
from server.engine.value import AutogradMeta, Storage, Value
from telegrad_protocol.meta import Meta

from .backward_program import Accumulation, Held, Program, Release, kept_at

if TYPE_CHECKING:
    from server.allocator import Block
    from server.allocator.cache.rehearsal import Excerpt, Rehearsal
    from server.engine.device.interface import Capture
    from server.engine.value import Backend

_MOST = 8
"""Captured passes of one program: its data lies at so many places."""
_SEEN = 64
_PATIENCE = 4
"""How many passes must have been launched for each that was captured, for more to be captured than are kept."""


class Situation(NamedTuple):
    """What a pass begins with: the memory it reads, who holds that, and where it runs."""

    blocks: tuple[Block, ...]
    holders: tuple[int, ...]
    place: tuple[Any, ...]


class Gradient(NamedTuple):
    """The gradient of a leaf: the leaf's node, and the memory that the pass leaves it in."""

    node: int
    block: Block
    nbytes: int
    meta: Meta


class Captured(NamedTuple):
    """A pass that can be launched. ``ended``: which of the storages that it reads are gone after it."""

    excerpt: Excerpt
    capture: Capture
    ended: tuple[int, ...]
    gradients: tuple[Gradient, ...]


class Captures:
    """What was captured of one program."""

    __slots__ = ("_captured", "_found", "_held", "_launched", "_leaves", "_released", "_seen")

    def __init__(self, program: Program) -> None:
        self._held: tuple[Held, ...] | None = None
        self._leaves = tuple([step.node for step in program.steps if step.__class__ is Accumulation])
        self._released = tuple([step.node for step in program.steps if step.__class__ is Release])
        self._found: dict[Situation, Captured] = {}
        self._seen: dict[Situation, Any] = {}
        self._captured = self._launched = 0

    @property
    def _is_worthwhile(self) -> bool:
        return self._captured < _MOST or self._launched > _PATIENCE * self._captured

    def make(self, program: Program, nodes: list[Any], first: list[Value]) -> None:
        """Make the program's pass over the nodes from the gradient in the list, in one launch if that can be."""
        backend = first[0].backend
        # A check whose outcome somebody waits for is an event, which is not the work's own.
        if backend.can_capture and context.current.checks.covered and self._is_worthwhile:
            storages = self._storages(nodes, first[0])
            if storages is not None:
                situation = Situation(
                    tuple([each.block for each in storages]), tuple(map(getrefcount, storages)), backend.place()
                )
                if self._launch(situation, backend, nodes, first, storages):
                    return
                del storages
                self._run(program, situation, backend, nodes, first)
                return
        program.run(nodes, {0: first.pop()})

    def _storages(self, nodes: list[Any], gradient: Value) -> list[Storage] | None:
        """The memory that the pass reads; None where the pass may fail, or adds to gradients that are there."""
        for number in self._leaves:
            if nodes[number].leaf.autograd.grad is not None:
                return None
        found = []
        if self._held is None:
            self._held = tuple(_all_saved(nodes))
        for held in self._held:
            kept = kept_at(held, nodes)
            if kept.storage.version != kept.version:
                return None
            found.append(kept.storage)
        found.append(gradient.storage)
        # What another device holds may be read by the host, once for all.
        return found if all([each.backend is gradient.backend for each in found]) else None

    def _launch(
        self, situation: Situation, backend: Backend, nodes: list[Any], first: list[Value], storages: list[Storage]
    ) -> bool:
        """Make the pass as it was captured, if it was."""
        known = self._found.get(situation)
        allocator = backend.allocator
        if known is None or not allocator.begins(known.excerpt):
            return False
        backend.flush()
        if not known.capture.launch():
            del self._found[situation]
            return False
        for number in known.ended:
            storages[number].keeper = _EXCERPT
        allocator.repeat(known.excerpt)
        first.clear()
        for number in self._released:
            nodes[number].release()
        for number, block, nbytes, meta in known.gradients:
            nodes[number].leaf.autograd.grad = Value(Storage(backend, block, nbytes), meta, backend)
        self._launched += 1
        return True

    def _run(
        self, program: Program, situation: Situation, backend: Backend, nodes: list[Any], first: list[Value]
    ) -> None:
        """Make the pass as usual, and capture it if it has come before."""
        mark = backend.allocator.mark()
        if mark is None or self._seen.get(situation) is not mark.state:
            if len(self._seen) >= _SEEN:
                self._seen.clear()
            if mark is not None:
                self._seen[situation] = mark.state
            program.run(nodes, {0: first.pop()})
            return
        before, held_by = _random_states(), self._held or ()
        metas = [*[kept_at(held, nodes).meta for held in held_by], first[0].meta]
        sizes = [*[kept_at(held, nodes).storage.nbytes for held in held_by], first[0].storage.nbytes]
        program.run(nodes, {0: first.pop()})
        self._captured += 1
        excerpt = backend.allocator.excerpt(mark)
        if excerpt is not None and _random_states() == before:
            script = _Script(program, held_by, backend, excerpt, situation.blocks, sizes, metas)
            found = script.capture(nodes, self._leaves)
            if found is not None:
                self._keep(situation, found)

    def _keep(self, situation: Situation, found: Captured) -> None:
        if len(self._found) >= _MOST:
            self._found.clear()
        self._found[situation] = found


class _Script:
    """A pass that was just made, to be gone through again on echoes of its memory."""

    def __init__(
        self, program: Program, held: tuple[Held, ...], backend: Backend, excerpt: Excerpt,
        blocks: tuple[Block, ...], sizes: list[int], metas: list[Meta],
    ) -> None:  # fmt: skip
        self._program, self._held = program, held
        self._backend = backend
        self._excerpt = excerpt
        self._blocks, self._sizes, self._metas = blocks, sizes, metas
        self._given_up = excerpt.given_up()

    def capture(self, nodes: list[Any], leaves: tuple[int, ...]) -> Captured | None:
        """The pass as one launch; None where it did something that one cannot repeat."""
        gradients = self._gradients(nodes, leaves)
        firsts = {block: number for number, block in reversed(list(enumerate(self._blocks)))}
        if gradients is None or not self._given_up <= firsts.keys():
            return None
        ended = tuple([firsts[block] for block in self._given_up])
        shapes = {number: nodes[number].leaf.meta for number in leaves}
        capture = self._backend.capture(partial(self._perform, len(nodes), shapes))
        return None if capture is None else Captured(self._excerpt, capture, ended, gradients)

    def _gradients(self, nodes: list[Any], leaves: tuple[int, ...]) -> tuple[Gradient, ...] | None:
        """The gradients that the pass has left; None where it has left other memory in use, or less."""
        found = []
        for number in leaves:
            value = nodes[number].leaf.autograd.grad
            storage = value.storage
            if value.base is not None or storage.keeper is not None or value.autograd is not None or storage.version:
                return None
            found.append(Gradient(number, storage.block, storage.nbytes, value.meta))
        made = [each.block for each in found if each.nbytes]
        is_all = self._excerpt.left() == set(made) and len(set(made)) == len(made)
        return tuple(found) if is_all else None

    def _perform(self, count: int, leaves: dict[int, Meta]) -> bool:
        """Go through the pass; tells whether it asked for the same memory in the same order."""
        with self._backend.allocator.rehearsing(self._excerpt) as rehearsal:
            try:
                self._pretend(rehearsal, count, leaves)
            except Exception as error:
                error.__traceback__ = error.__context__ = error.__cause__ = None  # they hold echoes
                return False
        return rehearsal.is_complete

    def _pretend(self, rehearsal: Rehearsal, count: int, leaves: dict[int, Meta]) -> None:
        backend = self._backend
        kept = {block: None if block in self._given_up else _EXCERPT for block in self._blocks}
        echoes = {block: rehearsal.echo(block) for block in kept}
        made: dict[Block, Storage] = {}
        for block, nbytes in zip(self._blocks, self._sizes):
            if block not in made:
                made[block] = Storage(backend, echoes[block], nbytes, kept[block])
        values = {0: Value(made[self._blocks[-1]], self._metas[-1], backend)}
        nodes = _Stage(count, leaves)
        for held, block, meta in zip(self._held, self._blocks, self._metas):
            nodes.save(held, Value(made[block], meta, backend))
        made.clear()
        self._program.run(nodes.nodes, values)
        for each in nodes.leaves():
            if each.autograd.grad is not None:  # type: ignore[union-attr]
                each.autograd.grad.storage.keeper = _EXCERPT  # type: ignore[union-attr]


class _Player:
    """Stands for a node: has saved what it did."""

    __slots__ = ("leaf", "saved")

    def __init__(self, leaf: Value | None) -> None:
        self.leaf = leaf
        self.saved: list[Any] | None = []

    def release(self) -> None:
        """Let go of what was saved."""
        self.saved = None


class _Items:
    """Stands for a list of saved values."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[Any] = []


class _Stage:
    """Stands for the nodes of a graph."""

    def __init__(self, count: int, leaves: dict[int, Meta]) -> None:
        self.nodes = [_Player(_leaf(leaves[n]) if n in leaves else None) for n in range(count)]

    def save(self, held: Held, value: Value) -> None:
        """Have a node save a value in its place."""
        holder, place, element = held
        saved: Any = self.nodes[holder].saved
        if element < 0:
            _put(saved, place, Saved(value))
            return
        if len(saved) <= place:
            _put(saved, place, _Items())
        _put(saved[place].items, element, Saved(value))

    def leaves(self) -> Iterator[Value]:
        """Those that have a gradient now."""
        return (node.leaf for node in self.nodes if node.leaf is not None)


def _put(items: list[Any], place: int, item: Any) -> None:
    """Append, after as much of nothing as is missing: lists are freed from their ends, in the order of their places."""
    items.extend([None] * (place - len(items)))
    items.append(item)


def _leaf(meta: Meta) -> Value:
    """A leaf that has no memory: a pass gives it a gradient and looks at nothing else."""
    leaf = Value.__new__(Value)
    leaf.meta = meta
    leaf.autograd = AutogradMeta(True)
    return leaf


def _all_saved(nodes: list[Any]) -> Iterator[Held]:
    """The places of everything that a graph holds: what no operation takes is let go of too."""
    for number, node in enumerate(nodes):
        for place, kept in enumerate(node.saved or ()) if node.__class__ is OpNode else ():
            if not isinstance(kept, SavedList):
                yield number, place, -1
            else:
                yield from ((number, place, k) for k, item in enumerate(kept.items) if isinstance(item, Saved))


def _random_states() -> list[Any]:
    """How far the session's generators have come: what draws random numbers is not the same work again."""
    found = context.current.generators.values()
    return list(chain.from_iterable([(each.initial_seed(), each.offset) for each in found]))


class _Excerpt:
    """Keeps memory that a storage must not free: an excerpt of the allocator's calls has, or will."""


_EXCERPT = _Excerpt()
