"""Gradients of recurrent layers that can be differentiated again: those of the same layer as a composition."""

from __future__ import annotations

from server.engine import functional as F
from server.engine.autograd.graph_task import GraphTask
from server.engine.autograd.inplace import edge_of


def recorded_gradients(compose, operands, settings, grads):
    """The gradients by the operands of ``compose(*operands, *settings)``; None for those that require none.

    The operands are entered through aliases, so that the pass within this pass ends where the layer begins.
    """
    entered = [None if operand is None else F.alias(operand) for operand in operands]
    results = compose(*entered, *settings)
    pairs = [(result, grad) for result, grad in zip(results, grads, strict=True) if edge_of(result) is not None]
    edges = [None if value is None else edge_of(value) for value in entered]
    task = GraphTask(True, True, [edge for edge in edges if edge is not None])
    task.execute([result for result, _ in pairs], [grad for _, grad in pairs])
    return [task.captured.get(edge) for edge in edges]
