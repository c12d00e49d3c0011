"""A recorded backward pass as a list of steps, and the tree of such programs in which a graph is looked up.

Values that the pass makes have numbers: they are in a table from the step that makes them to the last that needs them.
Nodes have numbers too, in the order in which the pass visits them. How programs are recorded is in
``backward_recording``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from sys import getrefcount
from typing import Any, Final, NamedTuple, TypeAlias

from server.allocator.native_calls import module
from server.engine import context
from server.engine.autograd import changes, sparing
from server.engine.autograd.gradients import ALONE_IN_ATTRIBUTE, ALONE_IN_TABLE, accumulate
from server.engine.autograd.graph import UNRECORDED, AccumulateGrad, Edge
from server.engine.autograd.node import GradientPlan, OpNode
from server.engine.device import cancellation
from server.engine.value import Value, new_value
from server.replay_policy import BACKWARD_PROGRAMS, ReplayPolicy, Sightings
from telegrad_protocol.meta import Meta

_LOOKS = 32
"""Compiled functions leave nodes of their own from about their third call on."""
_HIGHEST_SEQUENCE = 1 << 63
"""Above the sequence numbers of all nodes."""
Values: TypeAlias = dict[int, Value]
SavedPlace: TypeAlias = tuple[int, int, int]
"""Where a saved tensor is: the node's number, the place among what it saved, and the element of a list there or -1."""


class EdgeTarget(NamedTuple):
    """The node's number and the output that an edge leads to; ``is_first``: no edge before it leads to that node."""

    node: int
    output: int
    is_first: bool


class NodePattern(NamedTuple):
    """What a node must be: its gradient plan and its edges' targets; for the node of a leaf, the leaf's meta."""

    identity: GradientPlan | Meta
    targets: tuple[EdgeTarget | None, ...]


class Operation(NamedTuple):
    """One operation of the pass.

    ``arguments`` has None in the places of tensors. ``intermediate``, ``saved`` and ``lists`` say, by place, which
    values of the table, saved tensors and lists go there. ``results`` has the numbers of what it makes, ``freed`` those
    of the values that nothing needs after it. ``spent`` is the number of the first operand where that is a value that
    nothing needs afterwards, and the plan may write its result over it; else -1.
    """

    run: Callable[[tuple[Any, ...]], Any]
    arguments: list[Any]
    intermediate: tuple[tuple[int, int], ...]
    saved: tuple[tuple[int, SavedPlace], ...]
    lists: tuple[tuple[int, tuple[Any, ...]], ...]
    results: int | tuple[int, ...]
    freed: tuple[int, ...]
    spent: int = -1


class Accumulation(NamedTuple):
    """A gradient reaches a leaf; ``is_last``: nothing needs the gradient after it. ``freed`` are freed before it."""

    node: int
    value: int
    is_last: bool
    freed: tuple[int, ...]


class Release(NamedTuple):
    """A node frees its saved tensors, apart from those that are ``taken``: by slot, the number, and the meta."""

    node: int
    freed: tuple[int, ...]
    taken: tuple[tuple[int, int, Meta], ...] = ()


class NamedOperation(NamedTuple):
    """What an operation of a program is: its operator, its arguments with metas for values, and the node's identity.

    ``node`` is the node's number and name; None where the operation adds gradients up.
    """

    operator: Any
    bound: tuple[Any, ...]
    node: tuple[int, str] | None


class Program:
    """A recorded pass.

    ``branches`` has the programs of graphs that are the same up to the node of that number. ``captures`` is set by
    whoever launches passes as CUDA graphs. ``operations`` says of each operation what it is; ``noted`` is the program
    that notes them, where there is one, and this is the ``source`` of that one. ``fused`` makes the pass with chains
    fused, where it can; whether there is to be such a pass is looked at in the first ``looks`` passes.
    """

    __slots__ = (
        "_needed", "_patterns", "branches", "captures", "fused", "has_other_numbers", "looks", "noted", "operations",
        "source", "steps",
    )  # fmt: skip

    def __init__(
        self, patterns: list[NodePattern], steps: list[Operation | Accumulation | Release],
        operations: Sequence[NamedOperation] = (),
    ) -> None:  # fmt: skip
        self._patterns = patterns
        self.operations = operations
        self.noted: Any = None
        self.source: Program | None = None
        self.steps: list[Any] = steps
        self._needed: frozenset[SavedPlace] | None = None
        self.branches: dict[int, Program] = {}
        self.has_other_numbers = False
        """Whether the nodes that it shares with the program whose branch it is have other numbers in this one."""
        self.captures: Any = None
        self.fused: Any = None
        self.looks = _LOOKS

    def with_steps(self, steps: list[Any]) -> Program:
        """Return a program of other steps that make the same pass."""
        program = Program(self._patterns, steps, self.operations)
        program.captures, program.source = self.captures, self
        return program

    def match(self, nodes: list[Any], begin: int) -> int:
        """Fill in the nodes of a graph by number, from number ``begin`` on, which is known.

        Nodes of two numbers are two nodes: where the same one has both, it gets its gradients together.
        Returns the number of the first node that does not match, or -1 if the graph is the recorded one.
        """
        patterns = self._patterns
        nodes.extend([None] * (len(patterns) - len(nodes)))
        latest = next(
            (node.sequence for node in reversed(nodes[:begin]) if node.__class__ is OpNode), _HIGHEST_SEQUENCE
        )
        leaves = {node for node in nodes[:begin] if node.__class__ is AccumulateGrad}
        rest = zip(islice(nodes, begin, None), islice(patterns, begin, None))
        for number, (node, (identity, targets)) in enumerate(rest, begin):
            if identity.__class__ is Meta:
                if node.__class__ is not AccumulateGrad or node.leaf.meta is not identity or node in leaves:
                    return number
                leaves.add(node)
            elif (
                node.__class__ is not OpNode or node.plan is not identity or node.sequence >= latest
                or node.retained or node.saved is None or not _edges_match(node.edges, targets, nodes)
            ):  # fmt: skip
                return number
            else:
                latest = node.sequence
        return -1

    def add_branch(self, program: Program, number: int) -> None:
        """Keep the program of a graph that is the same up to the node of that number.

        Leaves that wait together are visited in the order in which they were made, which no pattern tells. So the same
        nodes may have other numbers there.
        """
        program.has_other_numbers = program._patterns[:number] != self._patterns[:number]
        self.branches[number] = program

    def saved_are_unmodified(self, nodes: list[Any]) -> bool:
        """Whether no saved tensor that the pass over ``nodes`` takes was modified in place."""
        if self._needed is None:
            self._needed = frozenset([place for step in self.steps for place in _saved_in(step)])
        saved_tensors = [saved_at(place, nodes) for place in self._needed]
        return all([saved.storage.version == saved.version for saved in saved_tensors])

    def run(self, nodes: list[Any], values: Values) -> None:
        """Make the pass over ``nodes``; ``values`` has the gradient to start from as number 0.

        It computes, allocates, frees and checks what the engine would, in the same order. Gradients must not be
        recorded meanwhile. Small steps are inlined: this loop is most of what the host does in a backward pass.
        """
        if self.fused is not None and self.fused.run(nodes, values):
            return
        for step in self.steps:
            if cancellation.requested:
                cancellation.pause()
            if step.__class__ is Operation:
                run, template, intermediate, saved, lists, results, freed, spent = step
                if spent >= 0 and sparing.may_be_spent(values, spent):
                    context.current.spent = values[spent]
                arguments = template.copy()
                for place, number in intermediate:
                    arguments[place] = values[number]
                for place, (holder, slot, element) in saved:
                    node = nodes[holder]
                    arguments[place] = unpacked(  # no local variable may refer to it: it is freed with the node
                        node.saved[slot] if element < 0 else node.saved[slot].items[element], node
                    )
                for place, items in lists:
                    arguments[place] = tuple([_list_element(item, nodes, values) for item in items])
                result: Any = run(tuple(arguments))
                arguments.clear()
                if spent >= 0:
                    context.current.spent = None
                if results.__class__ is int:
                    values[results] = result
                else:
                    values.update(zip(results, result))  # type: ignore[arg-type]  # results are no single number here
                result = None
            elif step.__class__ is Release:
                holder, freed, taken = step
                node = nodes[holder]
                for slot, number, _ in taken:
                    values[number] = unpacked(node.saved[slot], node)
                node.saved = None  # `OpNode.release`, inlined
            else:
                holder, number, is_last, freed = step
                for ended in freed:
                    del values[ended]
                leaf = nodes[holder].leaf
                gradient: Value | None = values[number]
                meta = leaf.meta
                if (  # `accumulate`, inlined for a leaf that can take over the gradient as it is
                    is_last and gradient.meta is meta and gradient.base is None and leaf.autograd.grad is None  # type: ignore[union-attr]
                    and leaf.autograd.requires_grad
                    and meta.is_contiguous and meta.offset == 0 and getrefcount(gradient) <= ALONE_IN_TABLE
                    and getrefcount(gradient.storage) <= ALONE_IN_ATTRIBUTE  # type: ignore[union-attr]
                ):  # fmt: skip
                    changes.note()
                    leaf.autograd.grad = values.pop(number)
                else:
                    gradient = None
                    accumulate(leaf, values.pop(number) if is_last else values[number], False)
                gradient = None
                continue
            for ended in freed:
                del values[ended]


class ProgramTree:
    """The programs of passes that begin in one way: a tree, because most of these graphs are the same for a while."""

    __slots__ = ("_count", "_fork", "_hits", "_latest", "_once", "_root", "_twice", "has_given_up", "policy")

    def __init__(self) -> None:
        self.policy = ReplayPolicy(BACKWARD_PROGRAMS)
        self.has_given_up = not self.policy.can_afford()
        """Whether passes come again too rarely to look for them, and to record those that are new."""
        self._root: Program | None = None
        self._fork: tuple[Program, int] | None = None
        self._count = self._hits = 0
        self._once, self._twice = Sightings(BACKWARD_PROGRAMS.sightings), Sightings(BACKWARD_PROGRAMS.sightings)
        self._latest = 0

    def comes_again(self, node: Any) -> bool:
        """Return whether a pass over a graph that begins with this node is one of those that come again and again.

        One over a graph of the same nodes came right before, or two came some time ago. Nodes are told apart by their
        plans and leaves by their metas, in the order in which edges lead to them; where else graphs differ is found by
        ``find``.
        """
        graph = hash(_identities(node))
        is_next, self._latest = graph == self._latest, graph
        return is_next or (self._once.repeats(graph) and self._twice.repeats(graph))

    def find(self, nodes: list[Any]) -> Program | None:
        """Return the program of the graph that begins with the node in the list; fills in the graph's other nodes."""
        program, number, self._fork = self._root, 0, None
        while program is not None:
            mismatch = program.match(nodes, number)
            if mismatch < 0:
                self._hits += 1
                return program
            self._fork, number = (program, mismatch), mismatch
            program = program.branches.get(mismatch)
            if program is not None and program.has_other_numbers:
                del nodes[1:]
                number = 0
        self.policy.hit(self._hits)
        self._hits = 0
        self.policy.miss()
        self.has_given_up = not self.policy.can_afford()
        return None

    def add(self, program: Program) -> bool:
        """Keep what was recorded after ``find`` has returned None; returns whether there was room."""
        if self._count >= BACKWARD_PROGRAMS.records:
            return False
        self._count += 1
        if self._fork is None:
            self._root = program
        else:
            parent, number = self._fork
            parent.add_branch(program, number)
        return True


def _identities_in_python(node: Any) -> tuple[int, ...]:
    return tuple(map(_identity, _reached_from(node)))


_identities: Final[Callable[[Any], tuple[int, ...]]] = _identities_in_python if module is None else module.identities
"""Returns what tells the nodes of a graph, in the order in which edges lead to them from its first node."""


def _reached_from(node: Any) -> dict[Any, None]:
    """Return the nodes that edges lead to, in the order in which they are found."""
    found, stack = {node: None}, [node]
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge[0] not in found:
                found[edge[0]] = None
                stack.append(edge[0])
    return found


def _identity(node: Any) -> int:
    """What tells a node from another, as far as hashes do: both live as long as what was worked out for calls."""
    return id(node.plan) if node.__class__ is OpNode else id(node.metas[0])


def _saved_in(step: Operation | Accumulation | Release) -> list[SavedPlace]:
    """The places of the saved tensors that a step takes."""
    if isinstance(step, Release):
        return [(step.node, slot, -1) for slot, _, _ in step.taken]
    if isinstance(step, Accumulation):
        return []
    listed = [item.place for _, items in step.lists for item in items if isinstance(item, SavedElement)]
    return [*listed, *[place for _, place in step.saved]]


def _edges_match(edges: Sequence[Edge | None], targets: Sequence[EdgeTarget | None], nodes: list[Any]) -> bool:
    """Whether a node's edges lead where they must; fills in the nodes that are met for the first time."""
    for edge, goal in zip(edges, targets):
        if edge is None or goal is None:
            if edge is not None or goal is not None:
                break
            continue
        following, output = edge
        number, wanted_output, is_first = goal
        if is_first:
            nodes[number] = following
        if output != wanted_output or nodes[number] is not following:
            break
    else:
        return True
    for goal in targets:
        if goal is not None and goal.is_first:
            nodes[goal.node] = None
    return False


class IntermediateElement(NamedTuple):
    """An element of a list argument that the pass makes: its number."""

    number: int


class SavedElement(NamedTuple):
    """An element of a list argument that is a saved tensor."""

    place: SavedPlace


def _list_element(item: Any, nodes: list[Any], values: Values) -> Any:
    if item.__class__ is IntermediateElement:
        return values[item.number]
    if item.__class__ is SavedElement:
        return unpacked(saved_at(item.place, nodes), nodes[item.place[0]])
    return item


def unpacked(saved: Any, consumer: Any) -> Value:
    """Unpack a saved tensor: `SavedTensor.unpack`, inlined for passes whose gradients are not recorded."""
    storage = saved.storage
    if storage.version != saved.version:
        raise saved.modified_error(consumer)
    value: Value | None = saved.value
    if value is None:
        value = new_value()
        value.storage, value.meta, value.backend = storage, saved.meta, storage.backend
        value.base, value._array = None, saved.array
        value.keys = storage.backend.key
        value.autograd = None if saved.node is None else UNRECORDED
    elif value.storage is not storage:
        return saved.unpack(consumer)  # type: ignore[no-any-return]
    return value


def saved_at(place: SavedPlace, nodes: list[Any]) -> Any:
    """Return the saved tensor in a place."""
    number, slot, element = place
    item = nodes[number].saved[slot]
    return item if element < 0 else item.items[element]
