"""Levels of dual numbers: tangents are computed from the backward graph, by a derivative of the derivative.

A level knows where the graphs of its dual numbers begin, and with which tangents. Nothing is computed before somebody
asks for the tangent of a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

from telegrad._batching.tensor import BatchedTensor, levels_of, plain, plain_at, rebatched, wrapped
from telegrad._ops.duals import duals
from telegrad._ops.operand_classes import without_modes
from telegrad._session.grad_mode import enable_grad, no_grad
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import (
    ClientNode,
    GradientEdge,
    GradientNode,
    SourceNode,
    has_client_parts,
    reachable,
)
from telegrad._tensor.tensor import Tensor
from telegrad_protocol import messages
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError

from ._batched_passes import are_batched
from ._gradients import dense_meta, describe
from ._products import jacobian_vector
from .function import Function


class Source(NamedTuple):
    """Where the graph of a dual number begins; ``number`` is what the server calls it.

    ``batches`` are the levels of ``vmap`` that it is batched at, the innermost first.
    """

    session: Any
    number: int
    dtype: DType
    tangent: Tensor
    batches: list[int]


class Level:
    """One level of dual numbers, which is entered when it is made."""

    is_transform = False
    """Whether a function of ``func`` that transforms others has entered the level, such as ``jvp``."""

    def __init__(self) -> None:
        self._sources: dict[SourceNode, Source] = {}
        self.has_rules = False
        """Whether the tangents of some results were computed by functions of the program."""
        self.multiplies = False
        """Whether tangents of this level are being computed."""
        duals.enter(self)

    def leave(self) -> None:
        """Leave the level: what was computed before is as it was, what is computed from here on has no tangents."""
        for node in self._sources:
            node.is_active = False
        duals.exit(self)

    def drop(self) -> None:
        """Drop the tangents."""
        sources, self._sources = self._sources, {}
        for source in sources.values():
            source.session.free(source.number)

    def exit(self) -> None:
        """Leave the level and drop its tangents."""
        self.leave()
        self.drop()

    def dual(self, tensor: Tensor, tangent: Tensor) -> Tensor:
        """Return a dual number of these elements and this tangent; it shares the memory, unless it requires grad.

        Raises ArgumentError for numbers without derivatives.
        """
        for what, given in (("primal", tensor), ("tangent", tangent)):
            if not given.dtype.is_differentiable:
                raise ArgumentError(f"Expected {what} to be floating point or complex, but got: {given.dtype}")
        batches = sorted({*levels_of(tensor), *levels_of(tangent)}, reverse=True)
        if batches:
            return wrapped(self._dual(plain_at(tensor, batches), plain_at(tangent, batches), batches), batches)
        return self._dual(tensor, tangent, [])

    def _dual(self, tensor: Tensor, tangent: Tensor, batches: list[int]) -> Tensor:
        session, number = tensor._session, tensor._session.new_id()
        shows_grad = tensor.requires_grad
        if tensor._is_tracked():
            with enable_grad(), without_modes():
                made: Tensor = tensor.clone()
            session.submit(messages.Watch(number, made._id), thread.modes)
            node = SourceNode(made._gradient_edge().parents, "AliasBackward0")
        else:
            with no_grad(), without_modes():
                made = tensor.detach()
            session.submit(messages.ClientNode(number, (), (made._id,)), thread.modes)
            node = SourceNode((), "AliasBackward0")
        made._requires_grad, made._node = True, node
        duals.adopt(made, shows_grad)
        self._sources[node] = Source(session, number, made._meta.dtype, tangent, batches)
        return made

    @property
    def nodes(self) -> Set[GradientEdge]:
        """Where the graphs of this level's dual numbers begin."""
        return self._sources.keys()

    def is_dual(self, tensor: Tensor) -> bool:
        """Return whether a tensor was computed from dual numbers of this level."""
        return tensor._is_tracked() and not self._sources.keys().isdisjoint(reached(self, [tensor._gradient_edge()]))

    def primal(self, tensor: Tensor) -> Tensor:
        """Return the elements of a dual number, without the tangent."""
        batches = levels_of(tensor)
        if batches:
            return wrapped(self.primal(plain(tensor)), batches)
        if not tensor.requires_grad:
            with no_grad():
                return tensor.detach()
        shown: Tensor = Primal.apply(tensor, self)
        return shown

    def depends_on_others(self, tensors: Iterable[Tensor]) -> bool:
        """Return whether some of these were computed from dual numbers of another level."""
        nodes = reachable([tensor._gradient_edge() for tensor in tensors if tensor._is_tracked()])
        return any([isinstance(node, SourceNode) and node.is_active and node not in self._sources for node in nodes])

    def tangents(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the tangents of tensors; None for those that were not computed from dual numbers of this level."""
        return self._products(tensors, [source.tangent for source in self._sources.values()])

    def products(self, tensors: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """Return what the tangents of ``tensors`` are where those of this level's dual numbers are ``tangents``."""
        sources = self._sources.values()
        return self._products(
            tensors, [plain_at(tangent, s.batches) for tangent, s in zip(tangents, sources, strict=True)]
        )

    def _products(self, tensors: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """Return products for batched tensors too; ``tangents`` are those of the tensors on the server."""
        batches = [levels_of(tensor) for tensor in tensors]
        results = self._plain_products([plain(tensor) for tensor in tensors], tangents)
        return [r if r is None else rebatched(r, levels) for r, levels in zip(results, batches, strict=True)]

    def _plain_products(self, tensors: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor | None]:
        results: list[Tensor | None] = [None] * len(tensors)
        given = dict(zip(self._sources, tangents, strict=True))
        wanted = []
        for place, tensor in enumerate(tensors):
            if not tensor._is_tracked():
                continue
            edge = tensor._gradient_edge()
            if isinstance(edge, SourceNode) and edge in given:
                results[place] = given[edge]
            elif not given.keys().isdisjoint(reached(self, [edge])):
                wanted.append(place)
        if wanted:
            computed = self._computed([tensors[place] for place in wanted], given)
            for place, tangent in zip(wanted, computed, strict=True):
                results[place] = tangent
        return results

    def _computed(self, roots: list[Tensor], given: dict[SourceNode, Tensor]) -> list[Tensor]:
        nodes = reached(self, [root._gradient_edge() for root in roots])
        used = {edge: _as_type(given[edge], self._sources[edge].dtype) for edge in given if edge in nodes}
        records = self._records(nodes, roots, list(used.values()))
        if has_client_parts(nodes) or are_batched(used.values()):
            return self._by_the_client(roots, used, records)
        session = roots[0]._session
        results = [Tensor(session, session.new_id(), dense_meta(root._meta)) for root in roots]
        session.submit(
            messages.ForwardGradient(
                session.sites.current(), _ids(roots), tuple([self._sources[edge].number for edge in used]),
                _ids(list(used.values())), _ids(results), records,
            ),
            thread.modes,
        )  # fmt: skip
        if records:
            describe(results, _lineage(roots, list(used.values())))
            shows_grad = any([tensor.requires_grad for tensor in (*roots, *used.values())])
            for result in results:
                if result._is_tracked():
                    duals.adopt(result, shows_grad)
        return results

    def _by_the_client(self, roots: list[Tensor], used: dict[SourceNode, Tensor], records: bool) -> list[Tensor]:
        """Compute tangents where hooks or functions of the program are on the way."""
        intercepts, duals.intercepts = duals.intercepts, False
        self.multiplies = True
        try:
            inputs = [_handle(self._sources[edge].number, _unbatched(tangent), edge) for edge, tangent in used.items()]
            outputs = [tracked_alias(root) for root in roots]
            with enable_grad():
                return jacobian_vector(outputs, inputs, list(used.values()), records)
        finally:
            self.multiplies = False
            duals.intercepts = intercepts

    def _records(self, nodes: set[GradientEdge], roots: list[Tensor], tangents: list[Tensor]) -> bool:
        """Return whether the tangents themselves are to be differentiated, by leaves or by dual numbers of others."""
        if any([tangent._is_tracked() for tangent in tangents]):
            return True
        others = any([isinstance(node, SourceNode) and node.is_active and node not in self._sources for node in nodes])
        return others or (thread.modes.records and any([root.requires_grad for root in roots]))


@contextmanager
def entered_level(is_transform: bool = False) -> Iterator[Level]:
    """Enter a new level in a block."""
    level = Level()
    level.is_transform = is_transform
    try:
        yield level
    finally:
        level.exit()


def tracked_alias(tensor: Tensor) -> Tensor:
    """Return an ordinary tensor with the elements of a dual number, and its place in the graph."""
    number = tensor._session.new_id()
    tensor._session.submit(messages.Watch(number, tensor._id), thread.modes)
    alias = _handle(number, tensor, tensor._gradient_edge())
    tensor._session.free(number)
    return alias


def _handle(number: int, elements: Tensor, edge: GradientEdge) -> Tensor:
    """Return a tensor whose place in the graph is the server's place of this number."""
    with no_grad(), without_modes():
        handle: Tensor = elements.detach()
    handle._session.submit(messages.ClientNode(number, (), (handle._id,)), thread.modes)
    handle._requires_grad, handle._node = True, edge
    return handle


def _unbatched(tangent: Tensor) -> Tensor:
    """Return a tensor of the shape of one element of a batch."""
    while isinstance(tangent, BatchedTensor):
        tangent = tangent._physical.select(0, 0)
    return tangent


def _as_type(tangent: Tensor, dtype: DType) -> Tensor:
    converted: Tensor = tangent if tangent.dtype is dtype else tangent.to(dtype)
    return converted


def _lineage(roots: list[Tensor], tangents: list[Tensor]) -> tuple[GradientEdge, ...]:
    return tuple([t._gradient_edge() for t in (*roots, *tangents) if t._is_tracked()])


def _ids(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple([tensor._id for tensor in tensors])


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
