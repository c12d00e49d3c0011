"""Replayed backward passes as one CUDA graph: the device does the captured work of a pass again at the same addresses.

Where a training loop repeats itself, its use of memory does too: the allocator is in the state that it was in, and
saved tensors lie where they lay. Then the kernels, their order and all their addresses are those of the captured pass.
The host only does what others can see: leaves get their gradients, nodes free their saved tensors, and the allocator
counts the calls that the pass would have made. If anything differs, the program is run instead.

A pass is captured when it comes again in the same state: its program runs as usual, and then once more as a *dry run*
on *shadow blocks* of the same memory, while the device captures what it is given and runs none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from sys import getrefcount
from typing import Any, NamedTuple

from server.allocator import Block
from server.allocator.cache.call_sequences import CallSequence, DryRun
from server.engine.autograd import changes
from server.engine.autograd.graph import SavedTensor, SavedTensorList
from server.engine.autograd.node import OpNode
from server.engine.device.interface import Capture
from server.engine.value import AutogradMeta, Backend, Storage, Value
from server.replay_policy import BACKWARD_CAPTURES, ReplayPolicy
from telegrad_protocol.meta import Meta

from .backward_program import Accumulation, Program, Release, SavedPlace, saved_at
from .captures import CaptureTable, go_through, settling
from .shadows import REPLAYED, random_states


class PassState(NamedTuple):
    """What a pass begins with: the blocks that it reads, how many hold these, and the device's stream and scratch.

    ``memory`` is the number of the allocator's state: loops may alternate between some, with the same blocks in each.
    """

    blocks: tuple[Block, ...]
    holders: tuple[int, ...]
    place: tuple[Any, ...]
    memory: int


class LeafGradient(NamedTuple):
    """The gradient that a pass gives to a leaf: the leaf's node, and the memory that it is in."""

    node: int
    block: Block
    nbytes: int
    meta: Meta


class CapturedPass(NamedTuple):
    """A pass that can be launched; ``freed`` has the numbers of those storages that it reads and frees."""

    calls: CallSequence
    graph: Capture
    freed: tuple[int, ...]
    gradients: tuple[LeafGradient, ...]


class BackwardCaptures:
    """What was captured of one program."""

    __slots__ = ("_captures", "_is_on_one_device", "_leaves", "_places", "_released", "has_given_up")

    def __init__(self, program: Program) -> None:
        self._captures: CaptureTable[CapturedPass] = CaptureTable(BACKWARD_CAPTURES)
        self.has_given_up = False
        """Whether captures are launched too rarely to make more, and to look for those that there are."""
        self._places: tuple[SavedPlace, ...] | None = None
        self._is_on_one_device = False
        """Whether all tensors of the pass are on one device; known with the places. A graph belongs to one."""
        self._leaves = tuple([step.node for step in program.steps if step.__class__ is Accumulation])
        self._released = tuple([step.node for step in program.steps if step.__class__ is Release])

    @property
    def policy(self) -> ReplayPolicy:
        """It counts launched passes as hits and captures as misses."""
        return self._captures.policy

    def run(self, program: Program, nodes: list[Any], gradients: list[Value]) -> None:
        """Make the program's pass over the nodes from the gradient in the list, as one graph if that can be."""
        backend = gradients[0].backend
        storages = self._storages(nodes, gradients[0])
        if storages is None:
            program.run(nodes, {0: gradients.pop()})
            return
        blocks = tuple([storage.block for storage in storages])
        memory = backend.allocator.state_number()
        state = PassState(blocks, tuple(map(getrefcount, storages)), backend.place(), memory)
        if self.replay(state, backend, nodes, gradients, storages):
            return
        del storages
        self._run_and_learn(program, state, backend, nodes, gradients)

    def _storages(self, nodes: list[Any], gradient: Value) -> list[Storage] | None:
        """Return the memory that the pass reads; None if the pass may fail, or cannot be captured.

        It cannot where it adds to gradients that are there, leaves a leaf without one, or goes from one device to
        another.
        """
        for number in self._leaves:
            history = nodes[number].leaf.autograd
            if history.grad is not None or not history.requires_grad:
                return None
        storages = []
        if self._places is None:
            self._places = tuple(_all_saved(nodes))
            self._is_on_one_device = (
                len({meta.device for node in nodes if node is not None for meta in node.metas}) == 1
            )
        if not self._is_on_one_device:
            return None
        for place in self._places:
            saved = saved_at(place, nodes)
            if saved.storage.version != saved.version or saved.is_replaced:
                return None
            storages.append(saved.storage)
        storages.append(gradient.storage)
        # The host may read another device's memory while the pass is captured, and not when it is launched.
        return storages if all([storage.backend is gradient.backend for storage in storages]) else None

    def replay(
        self, state: PassState, backend: Backend, nodes: list[Any], gradients: list[Value], storages: list[Storage]
    ) -> bool:
        """Launch the pass if it was captured in this state; returns False if nothing was done."""
        captured = self._captures.find(state, backend)
        if captured is None or not self._captures.launch(state, captured, backend):
            return False
        for number in captured.freed:
            storages[number].keeper = REPLAYED
        backend.allocator.replay(captured.calls)
        gradients.clear()
        for number in self._released:
            nodes[number].release()
        changes.note()
        for number, block, nbytes, meta in captured.gradients:
            nodes[number].leaf.autograd.grad = Value(Storage(backend, block, nbytes), meta, backend)
        return True

    def _run_and_learn(
        self, program: Program, state: PassState, backend: Backend, nodes: list[Any], gradients: list[Value]
    ) -> None:
        """Make the pass as usual, and capture it if it has asked for the same memory as passes before."""
        start = self._captures.start_remembered(backend)
        if start is None:
            program.run(nodes, {0: gradients.pop()})
            return
        generators, places = random_states(), self._places or ()
        saved_tensors = [saved_at(place, nodes) for place in places]
        metas = [*[saved.meta for saved in saved_tensors], gradients[0].meta]
        sizes = [*[saved.storage.nbytes for saved in saved_tensors], gradients[0].storage.nbytes]
        del saved_tensors
        with settling(backend):
            program.run(nodes, {0: gradients.pop()})
        calls = backend.allocator.sequence_since(start)
        if calls is None:
            return
        self.has_given_up = not self._captures.spend()
        if random_states() == generators:
            attempt = _CaptureAttempt(program, places, backend, calls, state.blocks, sizes, metas)
            captured = attempt.capture(nodes, self._leaves)
            if captured is not None:
                self._captures.keep(state, captured, backend)


class _CaptureAttempt:
    """A pass that was just made, to be gone through once more as a dry run while the device captures it."""

    def __init__(
        self, program: Program, places: tuple[SavedPlace, ...], backend: Backend, calls: CallSequence,
        blocks: tuple[Block, ...], sizes: list[int], metas: list[Meta],
    ) -> None:  # fmt: skip
        self._program, self._places = program.source or program, places  # a dry run is not noted
        self._backend = backend
        self._calls = calls
        self._blocks, self._sizes, self._metas = blocks, sizes, metas
        self._freed = calls.freed_blocks()

    def capture(self, nodes: list[Any], leaves: tuple[int, ...]) -> CapturedPass | None:
        """Return the pass as one graph; None if it did something that a graph cannot repeat."""
        gradients = self._gradients(nodes, leaves)
        numbers = {block: number for number, block in reversed(list(enumerate(self._blocks)))}
        if gradients is None or not self._freed <= numbers.keys():
            return None
        freed = tuple([numbers[block] for block in self._freed])
        leaf_metas = {number: nodes[number].leaf.meta for number in leaves}
        graph = self._backend.capture(partial(self._perform, len(nodes), leaf_metas))
        return None if graph is None else CapturedPass(self._calls, graph, freed, gradients)

    def _gradients(self, nodes: list[Any], leaves: tuple[int, ...]) -> tuple[LeafGradient, ...] | None:
        """Return the gradients that the pass has left; None if it has left other memory in use, or less."""
        gradients = []
        for number in leaves:
            value = nodes[number].leaf.autograd.grad
            storage = value.storage
            if value.base is not None or storage.keeper is not None or value.autograd is not None or storage.version:
                return None
            gradients.append(LeafGradient(number, storage.block, storage.nbytes, value.meta))
        made = [gradient.block for gradient in gradients if gradient.nbytes]
        is_all = self._calls.kept_blocks() == set(made) and len(set(made)) == len(made)
        return tuple(gradients) if is_all else None

    def _perform(self, count: int, leaf_metas: dict[int, Meta]) -> bool:
        """Make the dry run; returns whether it asked for the same memory in the same order."""
        work = partial(self._run_on_shadows, count=count, leaf_metas=leaf_metas)
        return go_through(self._backend, self._calls, work)

    def _run_on_shadows(self, dry_run: DryRun, count: int, leaf_metas: dict[int, Meta]) -> None:
        backend = self._backend
        keepers = {block: None if block in self._freed else REPLAYED for block in self._blocks}
        shadows = {block: dry_run.shadow(block) for block in keepers}
        storages: dict[Block, Storage] = {}
        for block, nbytes in zip(self._blocks, self._sizes):
            if block not in storages:
                storages[block] = Storage(backend, shadows[block], nbytes, keepers[block])
        values = {0: Value(storages[self._blocks[-1]], self._metas[-1], backend)}
        graph = _ShadowGraph(count, leaf_metas)
        for place, block, meta in zip(self._places, self._blocks, self._metas):
            graph.save(place, Value(storages[block], meta, backend))
        storages.clear()
        self._program.run(graph.nodes, values)
        for leaf in graph.leaves():
            if leaf.autograd.grad is not None:  # type: ignore[union-attr]
                leaf.autograd.grad.storage.keeper = REPLAYED  # type: ignore[union-attr]


class _ShadowNode:
    """Stands for a node in a dry run: it has the node's saved tensors on shadow blocks."""

    __slots__ = ("leaf", "saved")

    def __init__(self, leaf: Value | None) -> None:
        self.leaf = leaf
        self.saved: list[Any] | None = []


class _ShadowList:
    """Stands for a saved list of tensors in a dry run."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[Any] = []


class _ShadowGraph:
    """Stands for the nodes of a graph in a dry run."""

    def __init__(self, count: int, leaf_metas: dict[int, Meta]) -> None:
        leaves = [_shadow_leaf(leaf_metas[number]) if number in leaf_metas else None for number in range(count)]
        self.nodes = [_ShadowNode(leaf) for leaf in leaves]

    def save(self, place: SavedPlace, value: Value) -> None:
        """Have a node save a value in its place."""
        number, slot, element = place
        saved: Any = self.nodes[number].saved
        if element < 0:
            _put(saved, slot, SavedTensor(value))
            return
        if len(saved) <= slot:
            _put(saved, slot, _ShadowList())
        _put(saved[slot].items, element, SavedTensor(value))

    def leaves(self) -> Iterator[Value]:
        """The stand-ins of all leaves."""
        return (node.leaf for node in self.nodes if node.leaf is not None)


def _put(items: list[Any], place: int, item: Any) -> None:
    """Append an item at its place, after None for what is missing: lists are freed in the order of their places."""
    items.extend([None] * (place - len(items)))
    items.append(item)


def _shadow_leaf(meta: Meta) -> Value:
    """Return a leaf that has no memory: a pass gives it a gradient and looks at nothing else."""
    leaf = Value.__new__(Value)
    leaf.meta = meta
    leaf.autograd = AutogradMeta(True)
    return leaf


def _all_saved(nodes: list[Any]) -> Iterator[SavedPlace]:
    """The places of all that a graph has saved: what no operation takes is freed by the pass too."""
    for number, node in enumerate(nodes):
        for slot, saved in enumerate(node.saved or ()) if node.__class__ is OpNode else ():
            if not isinstance(saved, SavedTensorList):
                yield number, slot, -1
            else:
                yield from ((number, slot, k) for k, item in enumerate(saved.items) if isinstance(item, SavedTensor))
