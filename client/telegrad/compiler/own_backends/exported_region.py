"""A call that is exported: it does what it does, and the graph of all that it computes is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad._session.session import ClientSession
from telegrad._tensor.tensor import Tensor
from telegrad.compiler import regions
from telegrad.compiler.breaks import Unsupported
from telegrad.compiler.regions import Region
from telegrad.fx.graph import Graph

from .graphs import Graphs, OwnBackend
from .writing import GraphWriter, UnwritableError
from .written_region import WrittenRegion


def _no_backend(graph: Any, inputs: Any) -> Any:
    raise AssertionError("a call that is exported asks no backend")


class ExportedRegion(WrittenRegion):
    """Has the graph of a call, its inputs and its results, once the call is over; a graph break raises Unsupported."""

    def __init__(self, session: ClientSession, function: Any, names: Any) -> None:
        full = regions.Options(fullgraph=True)
        super().__init__(session, function, full, Graphs(OwnBackend(_no_backend, fullgraph=True)), names)
        self.graph = Graph()
        self.inputs: list[Tensor] = []
        self.results: Sequence[Tensor] = ()
        self._has_graph = False

    def _end_part(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and (writer.calls or not self._has_graph):
            self._keep(writer)
        Region._end_part(self)

    def _keep(self, writer: GraphWriter) -> None:
        if self._has_graph:
            raise Unsupported("export: the function does not compute one graph: torch._dynamo.explain tells why", None)
        try:
            self.results = writer.finish()
        except UnwritableError as error:
            raise Unsupported(f"export: {error}", None) from error
        self.graph, self.inputs, self._has_graph = writer.graph, writer.inputs, writer.calls > 0

    def _give_up(self, reason: str) -> None:
        raise Unsupported(f"export: {reason}", None)
