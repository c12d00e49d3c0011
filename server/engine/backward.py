"""``backward()`` and ``grad()``: they choose how a backward pass is made.

A training loop builds the same graph in every step. A pass that begins like one before is looked up among recorded
programs, and replayed if its graph is the recorded one; if not, it is recorded while the engine makes it. Passes with
captures (``grad``, ``inputs=``), ``create_graph``, several roots or streams, retained gradients, modes or a dispatch
trace are always the engine's. Knows nothing of how passes are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from server.engine import context
from server.engine.autograd.anomaly import new_task
from server.engine.autograd.gradients import accumulate
from server.engine.autograd.graph import Edge
from server.engine.autograd.graph_task import ONES, GraphTask, initial_gradient
from server.engine.autograd.inplace import edge_of
from server.engine.autograd.node import OpNode
from server.engine.dispatcher import dispatch
from server.engine.keys import ALL, AUTOGRAD, PROFILER
from server.engine.profiling.passes import noted
from server.engine.programs.fused_pass import fused_pass
from server.engine.replay import node_recording as _node_recording  # what nodes do is written down by it
from server.engine.replay.backward_capture import BackwardCaptures
from server.engine.replay.backward_program import Program, ProgramTree
from server.engine.replay.backward_recording import RecordingTask
from server.engine.value import Value
from server.replay_policy import BACKWARD_PROGRAMS
from telegrad_protocol import dtypes
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta

_ = _node_recording
_UNREPEATABLE = ALL & ~PROFILER
"""Modes under which passes are the engine's; to note a pass changes nothing of it."""


def backward(
    roots: Sequence[Value],
    gradients: Sequence[Value | None],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    inputs: Sequence[Value] | None = None,
) -> None:
    """Accumulate gradients into the ``.grad`` of all leaves that the graph reaches, or of ``inputs`` alone."""
    if inputs is None:
        edge = None if create_graph else _repeatable_edge(roots)
        if edge is None:
            new_task(retain_graph, create_graph, ()).execute(roots, gradients)
        else:
            _backward_from(edge, roots[0], gradients[0], retain_graph)
        return
    results = grad(roots, gradients, inputs, retain_graph=retain_graph, create_graph=create_graph, allow_unused=True)
    with context.grad_mode(create_graph):
        for leaf, gradient in zip(inputs, results, strict=True):
            if gradient is not None:
                accumulate(leaf, gradient, create_graph)


def grad(
    roots: Sequence[Value],
    gradients: Sequence[Value | None],
    inputs: Sequence[Value],
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> list[Value | None]:
    """Return the gradients of ``roots`` with respect to ``inputs``; nothing is accumulated."""
    edges = [_edge_to(value) for value in inputs]
    if not edges:  # a pass without captures would accumulate into all leaves
        for root, gradient in zip(roots, gradients, strict=True):
            initial_gradient(root, gradient)
        return []
    task = new_task(retain_graph, create_graph, edges)
    task.execute(roots, gradients)
    results = [task.captured.get(edge) for edge in edges]
    if not allow_unused and any(result is None for result in results):
        raise AutogradError(
            "grad: One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True "
            "if this is the desired behavior, to get None for it"
        )
    return results


def _edge_to(value: Value) -> Edge:
    edge = edge_of(value)
    if edge is None:
        raise AutogradError(f"grad: {value.meta} does not require grad")
    return edge


def _repeatable_edge(roots: Sequence[Value]) -> Edge | None:
    """Return the edge that the pass begins with if it may be a repeated one, else None."""
    current = context.current
    if (
        len(roots) != 1
        or current.own_streams.left_default
        or current.included & _UNREPEATABLE
        or current.trace is not None
    ):
        return None
    root = roots[0]
    history = root.autograd
    if root.base is None and history is not None and history.grad_fn is not None:
        edge: Edge | None = (history.grad_fn, history.output)  # `edge_of` for a result that is no view, without a call
    else:
        edge = edge_of(root)
    node: Any = None if edge is None else edge[0]
    if node.__class__ is not OpNode or node.retained or not node.plan.has_known_results:
        return None
    return edge


def _backward_from(edge: Edge, root: Value, gradient: Value | None, retain_graph: bool) -> None:
    """Make the pass from an edge with gradients disabled: `context.grad_mode`, inlined."""
    current = context.current
    is_enabled, excluded = current._grad_enabled, current.excluded
    current._grad_enabled, current.excluded = False, excluded | AUTOGRAD
    meta, dropped = root.meta, current.dropped
    lies_apart = dropped.last and dropped.lived_beside(edge[0])
    if lies_apart:
        dropped.begin_pass()
    try:
        if gradient is None and meta.numel == 1:  # `initial_gradient`, inlined
            gradients = [dispatch(ONES, (meta.shape, meta.dtype, meta.device))]
        else:
            gradients = [initial_gradient(root, gradient)]
        _follow(edge, gradients, retain_graph)
    finally:
        current._grad_enabled, current.excluded = is_enabled, excluded
        if lies_apart:
            dropped.end_pass()


def _follow(edge: Edge, gradients: list[Value], retain_graph: bool) -> None:
    """Make the pass from the gradient in the list, which may be its only holder."""
    current, node = context.current, edge[0]
    beginning = (
        node.plan, edge[1], gradients[0].meta, retain_graph, dtypes._default, current.switches, current.cudnn,  # type: ignore[attr-defined]
    )  # fmt: skip
    programs = current.programs.get(beginning)
    if programs is None or programs.has_given_up:
        if programs is None:
            _note_sighting(current.programs, beginning, node)
        GraphTask(retain_graph, False, ()).execute_from(edge, gradients)
        return
    nodes: list[Any] = [node]
    program = programs.find(nodes)
    if program is None:
        _make_new(programs, edge, gradients, retain_graph)
        return
    if program.looks and current.remade_nodes[1]:
        _fuse(program, nodes, gradients[0].meta)
    if current.before_replay is not None:
        current.before_replay(partial(program.saved_are_unmodified, nodes))
    if current.profiler is not None:
        program = noted(program, nodes)
    # A check whose outcome somebody waits for needs an event, which must not be a part of a graph.
    if gradients[0].backend.can_capture and current.checks.covered and not program.captures.has_given_up:
        program.captures.run(program, nodes, gradients)
    else:
        program.run(nodes, {0: gradients.pop()})


def _make_new(programs: ProgramTree, edge: Edge, gradients: list[Value], retain_graph: bool) -> None:
    """Make a pass whose graph is not among those recorded, and record it if there was one like it before.

    Graphs that are others in each pass, as those of episodes that are alike by chance, are never recorded then.
    """
    if not programs.comes_again(edge[0]):
        GraphTask(retain_graph, False, ()).execute_from(edge, gradients)
        return
    recorded = RecordingTask(retain_graph).record(edge, gradients)
    if recorded is not None and programs.add(recorded):
        recorded.captures = BackwardCaptures(recorded)


def _fuse(program: Program, nodes: list[Any], gradient: Meta) -> None:
    """Have a pass over nodes that a compiled function has left be fused, once its kernels are there."""
    if program.fused is None:
        program.looks -= 1
        first, last = context.current.remade_nodes
        if any([node.__class__ is OpNode and first <= node.sequence <= last for node in nodes]):
            program.fused = fused_pass(program, gradient)
            program.looks = int(program.fused is not None)
    elif program.fused.becomes_ready():
        program.captures, program.looks = BackwardCaptures(program), 0


def _note_sighting(programs: dict[Any, ProgramTree], beginning: Any, node: Any) -> None:
    """Note that a pass has begun in a new way; the next one that begins so, over a graph like its, is recorded."""
    if len(programs) >= BACKWARD_PROGRAMS.sightings:
        programs.clear()
    tree = programs[beginning] = ProgramTree()
    tree.comes_again(node)
