"""A call that is explained: it does what a compiled one does, and is written down as graphs besides."""

from __future__ import annotations

from typing import Any

from telegrad._session.session import ClientSession
from telegrad.compiler import regions
from telegrad.compiler.regions import Region
from telegrad.compiler.reports import NAMES
from telegrad.fx.graph_module import GraphModule
from telegrad_protocol import messages

from .graphs import Graphs, OwnBackend
from .writing import UnwritableError, module_of
from .written_region import WrittenRegion


def _no_backend(graph: Any, inputs: Any) -> Any:
    raise AssertionError("a call that is explained asks no backend")


class ExplainedRegion(WrittenRegion):
    """Keeps the graph of each part that computes something, and leaves what was queued as it is."""

    def __init__(self, session: ClientSession, function: Any, names: Any) -> None:
        super().__init__(session, function, regions.DEFAULT_OPTIONS, Graphs(OwnBackend(_no_backend)), names)
        self.graphs: list[GraphModule | list[str]] = []
        """By part; the names of the operations where no graph can say what they do."""
        self._part_number = 0

    def pause(self, why: Any) -> Region | None:
        return Region.pause(self, why)

    def resume(self) -> None:
        super().resume()
        self._part_number += 1

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of the program's, and write it down unless a part has ended in it."""
        number, writer, before = self._part_number, self._writer, self._session.operations
        result = func(*args, **kwargs)
        if number == self._part_number and writer is not None:
            self._write(func, args, kwargs, result, self._session.operations != before)
        return result

    def _end_part(self) -> None:
        writer, self._writer = self._writer, None
        graph: GraphModule | None = None
        if writer is not None and writer.calls:
            try:
                writer.finish()
                graph = module_of(writer.graph)
            except UnwritableError:
                pass
        observer = self._observer
        count = 0 if observer is None else len(observer.parts)
        Region._end_part(self)
        for part in [] if observer is None else observer.parts[count:]:
            if part.calls:
                self.graphs.append(graph if graph is not None else _names(part.calls))


def _names(calls: list[messages.Call]) -> list[str]:
    return [NAMES.get(call.op, "?") for call in calls]
