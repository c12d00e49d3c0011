"""What nodes of one plan do for a gradient: operations that are executed without their formulas being asked again.

Formulas tell from metas what they do, so nodes of the same plan do the same for gradients of the same meta, under the
same modes, whatever graph they are in. After some nodes what one of them does is written down, by who is told with
``prepare``, and executed by the plans that executed it. Knows nothing of graphs, or of how a node is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from server.engine import context
from server.engine.dispatcher import dispatch, specialized
from server.engine.keys import ALL
from server.engine.operators import OPERATORS, Run
from server.engine.plan import run_backend
from server.engine.signature import signature_of
from server.engine.value import Value
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Meta

from . import sparing
from .node import OpNode

RECORDED_AFTER: Final = 16
"""So many nodes of a plan are asked before one is recorded: more than a pass over a few layers of one size has."""
_MOST_RECORDINGS: Final = 4
"""So often a plan's node is recorded: its gradients may come in several layouts, or under several modes."""
_MOST_MODES: Final = 64
Modes: TypeAlias = tuple[Any, ...]
Source: TypeAlias = "int | tuple[int, int] | list[Any]"
"""Where an operand is: a place of the table, an element of a list there, or a list of these and of None."""


class NodeStep(NamedTuple):
    """One operation: what runs it, its arguments without tensors, and where these are, by place.

    ``results`` are the places in the table of what it makes; ``freed`` those of values that nothing needs after it.
    """

    run: Callable[[tuple[Any, ...]], Any]
    arguments: tuple[Any, ...]
    sources: tuple[tuple[int, Source], ...]
    results: int | tuple[int, ...]
    freed: tuple[int, ...]


class NodeProgram:
    """The operations of a node for a gradient of one meta, under modes that are the same object.

    The table of ``size`` values begins with what the node has saved and its gradient. ``results`` has the sources of
    the gradients for the node's edges.
    """

    __slots__ = ("gradient", "modes", "results", "size", "steps")

    def __init__(
        self, gradient: Meta, modes: Modes, size: int, steps: Sequence[NodeStep], results: Sequence[Source | None]
    ) -> None:  # fmt: skip
        self.gradient, self.modes = gradient, modes
        self.size, self.steps, self.results = size, tuple(steps), tuple(results)

    def run(self, node: OpNode, gradient: Value) -> list[Value | None]:
        """Return the gradients for the node's edges; raises what ``node.apply`` would."""
        values: list[Any] = [item.unpack(node) for item in node.saved or ()]
        values.append(gradient)
        values += [None] * (self.size - len(values))
        for run, arguments, sources, results, freed in self.steps:
            bound = list(arguments)
            for place, source in sources:
                bound[place] = _at(source, values)
            result = run(tuple(bound))
            bound.clear()
            if results.__class__ is int:
                values[results] = result
            else:
                for place, one in zip(results, result):  # type: ignore[arg-type]
                    values[place] = one
                one = None
            result = None
            for place in freed:
                values[place] = None
        return [None if source is None else _at(source, values) for source in self.results]


def _at(source: Source, values: list[Any]) -> Any:
    if source.__class__ is int:
        return values[source]
    if source.__class__ is tuple:
        return values[source[0]][source[1]]
    return tuple([None if item is None else _at(item, values) for item in source])  # type: ignore[union-attr]


_known: dict[Modes, Modes] = {}


def modes_now() -> Modes | None:
    """Return what formulas may depend on besides their operands, equal ones as one object.

    None under modes that watch operations, or change what they are: then nodes are to be asked each time.
    """
    current = context.current
    if current.included & ALL or current.trace is not None or current.recorder is not None:
        return None
    modes = dtypes._default, current.included, current.excluded, current.switches, current.cudnn
    if len(_known) > _MOST_MODES:
        _known.clear()
    return _known.setdefault(modes, modes)


Record: TypeAlias = "Callable[[OpNode, list[Value | None], Modes], tuple[Sequence[Value | None], NodeProgram | None]]"
_record: Record | None = None


def prepare(record: Record) -> None:
    """Tell what asks a node and writes down what it does; None in place of a program where that cannot be repeated."""
    global _record
    _record = record


def apply(node: OpNode, grads: list[Value | None], modes: Modes | None, releases: bool) -> Sequence[Value | None]:
    """Do what ``node.apply`` does where gradients are not recorded, by a program if there is one.

    ``releases``: the node is not needed any more, and nothing else takes the gradients out of the list.
    """
    program = node.plan.program
    if (
        program is not None and program.modes is modes and len(grads) == 1 and node.saved is not None
        and grads[0] is not None and grads[0].meta is program.gradient
    ):  # fmt: skip
        return program.run(node, grads[0])  # type: ignore[no-any-return]
    return learn(node, grads, modes, releases)


drain_in_c: Callable[..., None] | None = None
"""Visits the nodes of a pass as ``GraphTask._visit_all`` does, where that is compiled."""


def learn(node: OpNode, grads: list[Value | None], modes: Modes | None, releases: bool) -> Sequence[Value | None]:
    """Ask a node for which there is no program, and record it if there have been enough like it.

    Nodes that may spare memory are asked each time: what they do depends on who else holds what they have.
    """
    plan = node.plan
    if node.saved is not None and (plan.turns is None or plan.turns) and sparing.turns_of(node):
        return sparing.apply(node, grads) if releases and sparing.spares(node, grads) else node.apply(grads)
    plan.asked += 1
    if (
        plan.asked % RECORDED_AFTER or plan.asked > RECORDED_AFTER * _MOST_RECORDINGS or modes is None
        or _record is None or len(grads) != 1 or node.saved is None or not plan.has_known_results
    ):  # fmt: skip
        return node.apply(grads)
    results, program = _record(node, grads, modes)
    plan.program = program or plan.program
    return results


ADD: Final = OPERATORS["add"]
_MOST_ADDITIONS: Final = 256
additions: Final[dict[int, tuple[Meta, Modes, int, Run]]] = {}
"""By the identity of a meta: the meta, the modes and keys of gradients of it, and what adds two of them."""


def add(present: Value, gradient: Value, modes: Modes | None) -> Value:
    """Return the sum of two gradients of an output, and keep what adds two of their meta under these modes."""
    args, meta = (present, gradient, 1), present.meta
    result: Value = dispatch(ADD, args)
    if modes is not None and gradient.meta is meta and present.keys == gradient.keys:
        key_set, signature = signature_of(ADD, args)
        run = specialized(ADD, key_set, signature)
        if run is not None and ADD.resolved.get(key_set) is run_backend:
            if len(additions) >= _MOST_ADDITIONS:
                additions.clear()
            additions[id(meta)] = meta, modes, present.keys, run
    return result
