"""Gradients that depend on an operation's operands by a derivative of zero.

PyTorch computes the gradients of many operations by one function of the gradient and the operands, such as that of
``relu``. With ``create_graph`` they require a gradient, although they do not change with the operands: a program that
differentiates them gets zeros. The zeros are not computed on their way through the graph; a pass only notes where they
begin, and at its end gives zeros to what nothing else has reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from server.engine import functional as F
from server.engine.value import Value

from .graph import AccumulateGrad, Edge, Node
from .inplace import edge_of, rebase
from .node import OpNode

DEPENDING: Final = frozenset((
    "_adaptive_avg_pool", "_adaptive_max_pool", "_avg_pool", "_batch_norm", "_max_pool", "_nll_loss_forward",
    "_with_zero_derivative", "convolution", "hardshrink", "hardsigmoid", "hardtanh", "leaky_relu",
    "relu", "relu6", "softshrink", "threshold",
))  # fmt: skip
"""Operations whose gradients depend on all of their operands."""


class ZeroDerivative(Node):
    """The node of a gradient: the first edge is that of its formula, the others lead to the operation's operands."""

    __slots__ = ()

    @property
    def zero_edges(self) -> list[Edge]:
        """The edges to the operands that are given zeros for a gradient."""
        return [edge for edge in self.edges[1:] if edge is not None]

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        return [grads[0], *[None] * (len(self.edges) - 1)]


def depending_on_operands(
    node: OpNode, grads: Sequence[Value | None], gradients: Sequence[Value | None]
) -> Sequence[Value | None]:
    """Return what a node has computed from ``grads``, each of it depending on the operands of the operation."""
    return [
        gradient if gradient is None or edge is None else _depending(node, grads, gradient)
        for gradient, edge in zip(gradients, node.edges, strict=True)
    ]


def _depending(node: OpNode, grads: Sequence[Value | None], gradient: Value) -> Value:
    if gradient.base is not None or any(gradient is grad for grad in grads):
        gradient = F.clone(gradient)
    rebase(gradient, ZeroDerivative((edge_of(gradient), *node.edges), (gradient.meta,)))
    return gradient


def reached_by_zeros(starts: Sequence[Edge]) -> Iterator[Edge]:
    """Yield these edges, and all others that gradients at them flow to."""
    seen = set(starts)
    nodes: set[Node] = set()
    stack = list(seen)
    while stack:
        edge = stack.pop()
        yield edge
        if edge[0] in nodes:
            continue
        nodes.add(edge[0])
        for following in edge[0].edges:
            if following is not None and following not in seen:
                seen.add(following)
                stack.append(following)


def receiver_of(edge: Edge) -> Value | None:
    """Return the leaf at an edge, or the result there that retains its gradient, if it has no gradient yet."""
    node, output = edge
    if isinstance(node, AccumulateGrad):
        receiver: Value | None = node.leaf
    else:
        holder = node.retained.get(output) if node.retained else None
        receiver = holder() if holder else None
    if receiver is None or receiver.autograd is None or receiver.autograd.grad is not None:
        return None
    return receiver
