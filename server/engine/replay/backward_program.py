"""A backward pass as a list of steps, and whether a graph is the one that it was recorded on.

Intermediate results have numbers: they are in ``values`` from the step that makes them to the last that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from server.engine.autograd.engine import accumulate
from server.engine.autograd.graph import AccumulateGrad, Edge
from server.engine.autograd.node import OpNode, Tape
from server.engine.value import Value
from telegrad_protocol.meta import Meta

_LATEST = 1 << 63
"""Above the sequence numbers of all nodes."""
Values: TypeAlias = dict[int, Value]
Held: TypeAlias = tuple[int, int, int]
"""A saved value: of node number n, what it saved in place k, of a list its element j, else -1."""


class Goal(NamedTuple):
    """Where an edge must lead: a node's number and output; ``is_first``: no edge before it leads to that node."""

    target: int
    output: int
    is_first: bool


class Shape(NamedTuple):
    """What a node must be: its tape, and where its edges lead; for the end of a leaf, the leaf's meta."""

    known: Tape | Meta
    goals: tuple[Goal | None, ...]


class Step(NamedTuple):
    """An operation: what runs it, its arguments but for the values, where those come from, what is let go after it."""

    run: Callable[[tuple[Any, ...]], Any]
    arguments: list[Any]
    intermediate: tuple[tuple[int, int], ...]
    saved: tuple[tuple[int, Held], ...]
    lists: tuple[tuple[int, tuple[Any, ...]], ...]
    results: int | tuple[int, ...]
    ended: tuple[int, ...]


class Accumulation(NamedTuple):
    """A gradient arrives at a leaf; ``is_last``: nothing needs it after. What has ended is let go before it."""

    node: int
    value: int
    is_last: bool
    ended: tuple[int, ...]


class Release(NamedTuple):
    """A node lets go of what it saved."""

    node: int
    ended: tuple[int, ...]


class Program:
    """A recorded pass. ``branches``: programs of graphs that are the same up to the node of that number.

    ``needed``: the saved values that it takes.
    """

    __slots__ = ("_shapes", "branches", "captures", "needed", "steps")

    def __init__(self, shapes: list[Shape], steps: list[Step | Accumulation | Release]) -> None:
        self._shapes = shapes
        self.steps: list[Any] = steps
        self.needed = frozenset([held for step in steps if isinstance(step, Step) for held in _held_by(step)])
        self.branches: dict[int, Program] = {}
        self.captures: Any = None
        """Passes of this program that a device has noted; see `captured`."""

    def match(self, nodes: list[Any], begin: int) -> int:
        """Find the nodes by number, from a known one on; returns the number of the first that is another, or -1."""
        shapes = self._shapes
        nodes.extend([None] * (len(shapes) - len(nodes)))
        latest = next((node.sequence for node in reversed(nodes[:begin]) if node.__class__ is OpNode), _LATEST)
        for node, (known, goals) in zip(islice(nodes, begin, None), islice(shapes, begin, None)):
            if known.__class__ is Meta:
                if node.__class__ is not AccumulateGrad or node.leaf.meta is not known:
                    return nodes.index(node)
            elif (
                node.__class__ is not OpNode or node.tape is not known or node.sequence > latest
                or node.retained or node.saved is None or not _leads(node.edges, goals, nodes)
            ):  # fmt: skip
                return nodes.index(node)
            else:
                latest = node.sequence
        return -1

    def is_sound(self, nodes: list[Any]) -> bool:
        """Whether nobody has modified what the pass over these nodes needs of what they saved."""
        found = [kept_at(held, nodes) for held in self.needed]
        return all([kept.storage.version == kept.version for kept in found])

    def run(self, nodes: list[Any], values: Values) -> None:
        """Make the pass over ``nodes``; ``values`` has the gradient to start from as number 0."""
        for step in self.steps:
            if step.__class__ is Step:
                run, template, intermediate, saved, lists, results, ended = step
                arguments = template.copy()
                for place, number in intermediate:
                    arguments[place] = values[number]
                for place, (holder, slot, element) in saved:  # `_unpacked`, without a call
                    node = nodes[holder]
                    kept = node.saved[slot]
                    arguments[place] = (kept if element < 0 else kept.items[element]).unpack(node)
                for place, items in lists:
                    arguments[place] = tuple([_item(item, nodes, values) for item in items])
                found: Any = run(tuple(arguments))
                arguments.clear()
                if results.__class__ is int:
                    values[results] = found
                else:
                    values.update(zip(results, found))  # type: ignore[arg-type]  # it is no integer here
                found = None
            elif step.__class__ is Release:
                number, ended = step
                nodes[number].release()
            else:
                leaf, value, is_last, ended = step
                for number in ended:
                    del values[number]
                accumulate(nodes[leaf].leaf, values.pop(value) if is_last else values[value], False)
                continue
            for number in ended:
                del values[number]


def _held_by(step: Step) -> list[Held]:
    """The saved values that an operation takes."""
    listed = [item.held for _, items in step.lists for item in items if isinstance(item, SavedItem)]
    return [*listed, *[held for _, held in step.saved]]


def _leads(edges: Sequence[Edge | None], goals: Sequence[Goal | None], nodes: list[Any]) -> bool:
    """Whether a node's edges lead where they must; nodes that are met for the first time get their numbers."""
    for edge, goal in zip(edges, goals):
        if edge is None or goal is None:
            if edge is not None or goal is not None:
                break
            continue
        following, number = edge
        target, output, is_first = goal
        if is_first:
            nodes[target] = following
        if number != output or nodes[target] is not following:
            break
    else:
        return True
    for goal in goals:
        if goal is not None and goal.is_first:
            nodes[goal.target] = None
    return False


class Intermediate(NamedTuple):
    """An element of a list of arguments that the pass makes."""

    number: int


class SavedItem(NamedTuple):
    """An element of a list of arguments that a node has saved."""

    held: Held


def _item(item: Any, nodes: list[Any], values: Values) -> Any:
    if item.__class__ is Intermediate:
        return values[item.number]
    return _unpacked(item.held, nodes) if item.__class__ is SavedItem else item


def _unpacked(held: Held, nodes: list[Any]) -> Value:
    """A saved value, if nobody has modified it since."""
    value: Value = kept_at(held, nodes).unpack(nodes[held[0]])
    return value


def kept_at(held: Held, nodes: list[Any]) -> Any:
    """What a node has saved in a place."""
    number, place, element = held
    kept = nodes[number].saved[place]
    return kept if element < 0 else kept.items[element]
