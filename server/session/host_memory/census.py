"""Counts the nodes of the backward graphs that a session holds.

Knows what keeps a node alive; knows no limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from server.engine.autograd.client_pass import ClientPass, Hooked
from server.engine.autograd.graph import AccumulateGrad, Node, SavedTensor, SavedTensorList
from server.engine.autograd.inplace import CopySlices
from server.engine.autograd.node import OpNode
from server.engine.autograd.packed import PackedTensor
from server.engine.device import cancellation
from server.engine.value import Value

_OPERANDS = 2
"""A node of so many operands counts as one, and its size grows with more."""


def count_nodes(values: Iterable[Any], stops: Iterable[Any], passes: Iterable[ClientPass]) -> int:
    """Return the size of the graphs behind what a session holds, in nodes of two operands."""
    held = chain(values, stops, *(begun.nodes for begun in passes))
    stack = [node for item in held for node in _nodes_of(item)]
    seen: set[int] = set()
    size = 0
    while stack:
        if cancellation.requested:
            cancellation.stop()
        node = stack.pop()
        if node.sequence in seen:
            continue
        seen.add(node.sequence)
        size += 1 + max(len(node.edges) - _OPERANDS, 0) // _OPERANDS
        stack.extend([edge[0] for edge in node.edges if edge is not None])
        if isinstance(node, AccumulateGrad):
            stack.extend(_nodes_of(node.leaf))
        elif isinstance(node, CopySlices):
            stack.append(node.inner)
        elif isinstance(node, OpNode):
            for saved in node.saved or ():
                stack.extend(_creators(saved))
            stack.extend([edge[0] for edge in getattr(node, "composed", ((), ()))[1]])
    return size


def _nodes_of(item: Any) -> Iterator[Node]:
    """Yield the nodes that a value, an edge, or a node holds itself."""
    if isinstance(item, Value):
        history = item.autograd
        if history is not None:
            if history.grad_fn is not None:
                yield history.grad_fn
            if history.grad is not None:
                yield from _nodes_of(history.grad)
        if item.base is not None:
            yield from _nodes_of(item.base)
    elif isinstance(item, Node):
        yield item
    elif isinstance(item, tuple):
        yield item[0]
    elif isinstance(item, Hooked):
        yield item.node


def _creators(saved: Any) -> Iterator[Node]:
    if isinstance(saved, SavedTensorList):
        for item in saved.items:
            yield from _creators(item)
    elif isinstance(saved, SavedTensor | PackedTensor) and isinstance(saved.node, Node):
        yield saved.node
