"""Backward passes that a session repeats: recorded when they come a second time, then run as programs.

A training loop builds the same graph in every step. A program runs the operations of such a pass without evaluating
formulas, finding plans and counting who waits for what; it computes, allocates, frees and checks what the engine would,
in the same order. Whatever is not plain (captures, hooks, modes, several roots or streams) is left to the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from server.engine import context
from server.engine.autograd import engine
from server.engine.autograd.engine import seed
from server.engine.autograd.graph import Edge
from server.engine.autograd.inplace import edge_of
from server.engine.autograd.node import OpNode
from server.engine.value import Value
from telegrad_protocol import dtypes

from .backward_program import Program
from .backward_recording import RecordingRun
from .captured_backward import Captures

_MOST_BEGINNINGS = 256
_MOST_PROGRAMS = 32


class ReplayingRun(engine._Run):
    """One pass over the graph: by a program where there is one."""

    __slots__ = ()

    def execute(self, roots: Sequence[Value], gradients: Sequence[Value | None]) -> None:
        current = context.current
        edge = edge_of(roots[0]) if len(roots) == 1 else None
        is_plain = not current.included and current.trace is None and not self.create_graph and not self.capture
        if edge is None or not is_plain or not isinstance(edge[0], OpNode):
            return super().execute(roots, gradients)
        if edge[0].retained or not edge[0].tape.is_foreseen:
            return super().execute(roots, gradients)
        with context.grad_mode(False):
            self._follow(edge, edge[0], [seed(roots[0], gradients[0])])

    def _follow(self, edge: Edge, node: OpNode, first: list[Value]) -> None:
        """Make the pass from the gradient in the list, which alone holds it here."""
        current = context.current
        beginning = (
            node.tape, edge[1], first[0].meta, self.retain_graph, dtypes._default, current.switches, current.cudnn,
        )  # fmt: skip
        known = current.programs.get(beginning)
        if known is None or not known.is_worthwhile:
            if known is None:
                _remember(current.programs, beginning)
            self._receive(edge, first.pop())
            self._drain([node])
            return
        nodes: list[Any] = [node]
        program = known.find(nodes)
        if program is not None:
            if current.ahead is not None:
                current.ahead(partial(program.is_sound, nodes))
            program.captures.make(program, nodes, first)
        else:
            known.add(RecordingRun(self.retain_graph).record(edge, first))


class Known:
    """The programs of passes that begin in one way: a tree, since most of their graphs are the same for a while."""

    __slots__ = ("_count", "_fork", "_hits", "_misses", "_root")

    def __init__(self) -> None:
        self._root: Program | None = None
        self._fork: tuple[Program, int] | None = None
        self._count = self._hits = self._misses = 0

    @property
    def is_worthwhile(self) -> bool:
        """Whether passes come again often enough to look for them, and to record those that are new."""
        return self._misses < _MOST_PROGRAMS or self._hits > self._misses

    def find(self, nodes: list[Any]) -> Program | None:
        """The program of the graph that begins with the node in the list, which gets the others."""
        program, number, self._fork = self._root, 0, None
        while program is not None:
            failed = program.match(nodes, number)
            if failed < 0:
                self._hits += 1
                return program
            self._fork, number = (program, failed), failed
            program = program.branches.get(failed)
        self._misses += 1
        return None

    def add(self, program: Program | None) -> None:
        """Keep what was recorded after nothing was found, if it can be repeated."""
        if program is None or self._count >= _MOST_PROGRAMS:
            return
        self._count += 1
        program.captures = Captures(program)
        if self._fork is None:
            self._root = program
        else:
            before, number = self._fork
            before.branches[number] = program


def _remember(known: dict[Any, Known], beginning: Any) -> None:
    if len(known) >= _MOST_BEGINNINGS:
        known.clear()
    known[beginning] = Known()
