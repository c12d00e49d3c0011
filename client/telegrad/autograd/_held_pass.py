"""The part of a backward pass whose gradients are objects of the program, which no number names on the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._session.grad_mode import set_grad_enabled
from telegrad._tensor.autograd_graph import ClientNode, ClientOutput, GradientEdge, LeafNode, Watched
from telegrad._tensor.held_gradients import is_held, key_of
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import NotSupportedError
from telegrad_protocol.meta import Meta

from .anomaly_mode import refuse_nan


class HeldPass:
    """Gradients of tensors of classes that keep their own elements, within a ``ClientPass``.

    ``handed`` are tensors that the server knows, with gradients that another pass takes on from there.
    """

    _inputs: list[Tensor] | None
    _retain_graph: bool
    _create_graph: bool
    _on_server: set[GradientEdge]
    """Nodes that the server walks through in this pass."""

    def __init__(self, roots: list[tuple[Tensor, Tensor | None]]) -> None:
        self._held: dict[Any, Any] = {}
        """Gradients by what they flow to."""
        self._held_roots = [pair for pair in roots if pair[0]._session.holds_gradients]
        self._plain_leaves: list[Tensor] = []
        """Leaves of the server whose gradient is an object of the program."""
        self.handed: list[tuple[Tensor, Tensor]] = []

    def _take(self, stop: int, metas: Sequence[Meta | None]) -> list[Any]:
        raise NotImplementedError

    def _give(
        self, stop: int, gradients: Sequence[Tensor | None] | None, leaves: tuple[tuple[int, int], ...] = ()
    ) -> None:
        raise NotImplementedError

    def _hold(self, edge: GradientEdge, gradient: Tensor) -> None:
        """Add a gradient to what has flowed to an edge."""
        before = self._held.get(key_of(edge))
        self._held[key_of(edge)] = gradient if before is None else before + gradient

    def _holds_gradient_of(self, tensor: Tensor) -> bool:
        return bool(tensor._session.holds_gradients) or key_of(tensor._gradient_edge()) in self._held

    def _accumulate_held(self, leaves: Sequence[Tensor]) -> None:
        """Accumulate gradients that are objects of the program."""
        given = {id(gradient) for _, gradient in self._held_roots}
        with set_grad_enabled(self._create_graph):
            for leaf in leaves:
                gradient = self._held.get(key_of(leaf._gradient_edge()))
                if gradient is None:
                    continue
                if not self._create_graph:
                    gradient = gradient.clone() if id(gradient) in given else gradient.detach()
                given.add(id(gradient))
                leaf._grad = gradient if leaf._grad is None else leaf._grad + gradient

    def _call_hooks_of_held(self, node: GradientEdge, watched: Watched) -> None:
        for hook in watched.on_gradient:
            result = hook(self._held[key_of(node)])
            if result is not None:
                self._held[key_of(node)] = result
        leaf = node.tensor() if isinstance(node, LeafNode) and self._inputs is None and watched.after else None
        if leaf is not None:
            self._accumulate_held([leaf])
            del self._held[key_of(node)]
            watched.call_after(leaf)

    def _differentiate_held(self, node: ClientNode, arrived: list[Meta | None]) -> list[GradientEdge]:
        """Differentiate a function some of whose gradients are objects of the program."""
        is_on_server = node in self._on_server
        own = [self._held.get((node, place)) for place in range(len(arrived))]
        gradients: list[Any] = [None] * len(arrived)
        if is_on_server:
            pairs = zip(arrived, own, strict=True)
            gradients = self._take(node.number, [meta if held is None else None for meta, held in pairs])
        gradients = [taken if held is None else held for taken, held in zip(gradients, own, strict=True)]
        if not is_on_server and all(gradient is None for gradient in gradients):
            return []
        operands = node.held.operands if node.held is not None else [None] * len(node.edges)
        results = node.context.differentiate(gradients)
        refuse_nan(node.name, results)
        if not self._retain_graph:
            node.release()
        flows: list[GradientEdge] = []
        given: list[Tensor | None] = []
        for edge, operand, result in zip(node.edges, operands, results, strict=True):
            if edge is None or result is None:
                given.append(None)
                continue
            is_own = result._session.holds_gradients
            given.append(None if is_own else result)
            if is_held(edge) or (isinstance(edge, ClientOutput) and (is_own or not is_on_server)):
                given[-1] = None
                self._hold(edge, result)
                flows.append(edge)
            elif is_own and isinstance(edge, LeafNode):
                self._hold(edge, result)
                self._plain_leaves += [leaf for leaf in (edge.tensor(),) if leaf is not None]
            elif is_own or (operand is None and not is_on_server):
                raise NotSupportedError(
                    f"{node.name}: the gradient of what the server computed is a {type(result).__name__}; return a "
                    "plain tensor for it"
                )
            elif is_on_server:
                flows.append(edge)
            else:
                self.handed.append((operand, result))
        if is_on_server:
            self._give(node.number, given)
        return flows


def watched_at(node: GradientEdge) -> list[Watched]:
    return node.extras.active() if node.extras is not None else []


def dense(gradient: Tensor | None) -> Tensor | None:
    """Return a gradient as the server takes it, where a function of the program gives a sparse one."""
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient
