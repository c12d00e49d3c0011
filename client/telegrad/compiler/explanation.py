"""``explain``: the programs and graph breaks of one call of a function."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from telegrad._session.current import current_session

from . import prints, regions, reports
from .originals import original_of
from .own_backends.explained_region import ExplainedRegion
from .own_backends.naming import names_of
from .reports import NAMES, ProgramReport


class ExplainOutput:
    """What one call has queued: graphs, which are programs, with the operations of each, and the breaks between them.

    Printing it shows PyTorch's text. ``graphs`` are modules of ``torch.fx``, or the names of operations where none can
    say what was done; ``ops_per_graph`` has the names of all, ``break_reasons`` a ``reason`` and a ``user_stack`` for
    each break. ``programs`` are those that the call has run, after two calls alike, with what the server has made of
    them; ``out_guards`` are the situations that they were specialised for last.
    """

    def __init__(
        self, observer: regions.Observer, programs: Sequence[ProgramReport], seconds: float, graphs: Sequence[Any]
    ) -> None:  # fmt: skip
        parts, breaks = [part.calls for part in observer.parts], observer.breaks
        self.ops_per_graph = [[NAMES.get(call.op, "?") for call in part] for part in parts if part]
        self.graphs = list(graphs) if len(graphs) == len(self.ops_per_graph) else self.ops_per_graph
        self.graph_count = len(self.graphs)
        self.break_reasons = breaks
        self.graph_break_count = len(breaks)
        self.op_count = sum(map(len, self.ops_per_graph))
        self.programs = list(programs)
        self.out_guards = [
            f"program {one.number}: {line}"
            for one in programs
            for last in one.specialisations[-1:]
            for line in last.situation
        ]
        self.compile_times = f"{seconds:.4f} s for the call"

    @classmethod
    def of_graphs(cls, graphs: Sequence[Any], op_count: int) -> ExplainOutput:
        """Return what is known of graphs that a backend was given one after the other, without their breaks."""
        made = cls(regions.Observer(), (), 0.0, ())
        made.graphs, made.graph_count, made.op_count = list(graphs), len(graphs), op_count
        made.graph_break_count = max(0, len(graphs) - 1)
        calls = [[node for node in graph.graph.nodes if node.op == "call_function"] for graph in graphs]
        made.ops_per_graph = [[node.target for node in nodes] for nodes in calls]
        return made

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}", "Break Reasons:",
        ]  # fmt: skip
        for number, broken in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {broken.reason}", "    User Stack:"]
            lines += [f"      {line}" for line in broken.user_stack]
        lines.append("Ops per Graph:")
        for number, names in enumerate(self.ops_per_graph, 1):
            lines += [f"  Ops {number}:", *[f"    {name}" for name in names]]
        if self.out_guards:
            lines += ["Out Guards:", *[f"  Guard {number}: {line}" for number, line in enumerate(self.out_guards, 1)]]
        for program in self.programs:
            lines.append(f"Program {program.number}: {program.instructions} instructions")
            for number, one in enumerate(program.specialisations, 1):
                lines += [f"  Specialisation {number}:", *[f"    {line}" for line in one.lines()]]
        return "\n".join([*lines, f"Compile Times: {self.compile_times}"])


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Return a function that calls ``f`` once, as a compiled one, and returns what that has queued.

    A ``print`` counts as a graph break here and in the first call with ``fullgraph=True``, as in PyTorch; elsewhere it
    is none, since Python runs in each call.
    """

    def run(*args: Any, **kwargs: Any) -> ExplainOutput:
        current_session()  # so that there is one
        function = original_of(f) or getattr(f, "_orig_mod", f)
        before, regions.active.observer = regions.active.observer, regions.Observer()
        observer, begin = regions.active.observer, time.perf_counter()
        try:
            with prints.ending_programs(regions.active):
                graphs = _explained(function, args, kwargs)
        finally:
            regions.active.observer = before
        seconds = time.perf_counter() - begin
        return ExplainOutput(observer, reports.asked(current_session(), observer.programs), seconds, graphs)

    return run(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else run


def _explained(function: Callable[..., Any], args: Any, kwargs: Any) -> Sequence[Any]:
    """Call a function as a compiled one, and return its graphs; none where it is called within a compiled one."""
    session = current_session()
    if regions.active.region is not None or regions.active.disabled or session.holder is not None or session.blocking:
        regions.run(function, args, kwargs)
        return ()
    region = ExplainedRegion(session, function, names_of(function, args, kwargs))
    with region:
        result = function(*args, **kwargs)
    del result  # it has outlived the call, as that of a compiled one does
    return region.graphs
