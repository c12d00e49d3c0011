"""A dual number without its tangent, where it requires a gradient: gradients flow through it, tangents do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from telegrad._tensor.autograd_graph import ClientNode, GradientEdge, GradientNode, reachable
from telegrad._tensor.tensor import Tensor

from .function import Function


class Primal(Function):
    """Shows a tensor without its tangent of a level, which says by ``multiplies`` that it computes tangents."""

    _has_no_jvp = False

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, level: Any) -> Any:
        ctx.level = level
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None if ctx.level.multiplies else gradient, None


def reached(level: Any, edges: Iterable[GradientEdge]) -> set[GradientEdge]:
    """Return all nodes that tangents of a level may reach these edges through, which is not beyond its primals.

    A gradient has tangents also by what the nodes have saved that it came through.
    """
    seen = set(edges)
    stack = list(seen)
    gradients = []
    while stack:
        node = stack.pop()
        if isinstance(node, GradientNode):
            gradients.append(node)
        elif isinstance(node, ClientNode) and getattr(node.context, "level", None) is level:
            continue
        stack += [parent for parent in node.parents if parent not in seen]
        seen.update(node.parents)
    return seen | reachable(gradients) if gradients else seen
