"""``explain``: the programs and graph breaks of one call of a function."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from telegrad._session.current import current_session

from . import prints, regions, reports
from .originals import original_of
from .reports import NAMES, ProgramReport


class ExplainOutput:
    """What one call has queued: graphs, which are programs, with the operations of each, and the breaks between them.

    Printing it shows PyTorch's text. ``graphs`` and ``ops_per_graph`` have the names of operations, ``break_reasons``
    a ``reason`` and a ``user_stack`` for each break. ``programs`` are those that the call has run, after two calls
    alike, with what the server has made of them; ``out_guards`` are the situations that they were specialised for last.
    """

    def __init__(self, observer: regions.Observer, programs: Sequence[ProgramReport], seconds: float) -> None:
        parts, breaks = [part.calls for part in observer.parts], observer.breaks
        self.ops_per_graph = [[NAMES.get(call.op, "?") for call in part] for part in parts if part]
        self.graphs = self.ops_per_graph
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
                regions.run(function, args, kwargs)
        finally:
            regions.active.observer = before
        seconds = time.perf_counter() - begin
        return ExplainOutput(observer, reports.asked(current_session(), observer.programs), seconds)

    return run(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else run
