"""Parts of the graph whose gradients are objects of the program: those of classes that keep their own elements.

The server knows nothing of them. Where gradients flow from there to tensors that the server knows, another pass goes
on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .autograd_graph import ClientNode, ClientOutput, GradientEdge, LeafNode, OperationNode


class HeldParts:
    """Which of a function's operands and results have gradients that are objects of the program.

    ``outputs`` are the places of such results. ``is_remote`` tells that the server knows some result. ``operands`` are
    the tensors that the function was applied to; what the server knows of them is differentiated further there.
    """

    __slots__ = ("is_remote", "operands", "outputs")

    def __init__(self, operands: Sequence[Any], outputs: dict[int, Any]) -> None:
        self.operands = list(operands)
        self.outputs = frozenset([place for place, out in outputs.items() if out._session.holds_gradients])
        self.is_remote = len(self.outputs) < len(outputs)


def is_held(edge: GradientEdge) -> bool:
    """Whether the gradient that flows to an edge is an object of the program."""
    if isinstance(edge, ClientOutput):
        held = edge.function.held
        return held is not None and edge.index in held.outputs
    if isinstance(edge, LeafNode):
        tensor = edge.tensor()
        return tensor is not None and bool(tensor._session.holds_gradients)
    return False


def key_of(edge: GradientEdge) -> Any:
    """Return what a gradient is kept under until it is used."""
    return (edge.function, edge.index) if isinstance(edge, ClientOutput) else edge


def parents_of(node: GradientEdge) -> Sequence[GradientEdge]:
    """Return the edges that gradients of a node flow to in the same pass."""
    if isinstance(node, ClientNode) and node.held is not None and not node.held.is_remote:
        return [edge for edge in node.parents if is_held(edge) or isinstance(edge, ClientOutput)]
    return node.parents


def reachable_in_pass(roots: Iterable[GradientEdge]) -> set[GradientEdge]:
    """Return all nodes that gradients of the roots flow to in one pass, the roots included."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        for parent in parents_of(stack.pop()):
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return seen


def on_server(roots: Iterable[GradientEdge]) -> set[GradientEdge]:
    """Return the nodes that the server walks through in a pass from roots that it knows."""
    seen = {root for root in roots if not is_held(root)}
    stack = list(seen)
    while stack:
        for parent in stack.pop().parents:
            if parent not in seen and not is_held(parent):
                seen.add(parent)
                stack.append(parent)
    return seen


def parents_counted(nodes: set[GradientEdge]) -> dict[GradientEdge, int]:
    """Return from how many nodes among these gradients flow to each."""
    counts: dict[GradientEdge, int] = {}
    for node in nodes:
        for parent in parents_of(node):
            counts[parent] = counts.get(parent, 0) + 1
    return counts


def leading_to(targets: set[GradientEdge], nodes: set[GradientEdge]) -> set[GradientEdge]:
    """Return the nodes that gradients flow through on their way to ``targets``, by the edges in reverse."""
    children: dict[GradientEdge, list[OperationNode]] = {}
    for node in nodes:
        if isinstance(node, OperationNode):
            for parent in parents_of(node):
                children.setdefault(parent, []).append(node)
    leading: set[GradientEdge] = set()
    stack = [target for target in targets if target in nodes]
    while stack:
        for child in children.get(stack.pop(), ()):
            if child not in leading:
                leading.add(child)
                stack.append(child)
    return leading
