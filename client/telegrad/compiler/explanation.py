"""``explain``: the programs and graph breaks of one call of a function."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from telegrad._session.current import current_session
from telegrad._session.own_code import is_own
from telegrad_protocol import messages
from telegrad_protocol.ops import TABLE

from . import regions
from .breaks import GraphBreak

_NAMES = {op.index: op.public for op in TABLE.values()}


class ExplainOutput:
    """What one call has queued: graphs, which are programs, with the operations of each, and the breaks between them.

    Printing it shows PyTorch's text. ``graphs`` and ``ops_per_graph`` have the names of operations, ``break_reasons``
    a ``reason`` and a ``user_stack`` for each break. Nothing is guarded, so ``out_guards`` is empty.
    """

    def __init__(self, parts: Sequence[list[messages.Call]], breaks: list[GraphBreak], seconds: float) -> None:
        self.ops_per_graph = [[_NAMES.get(call.op, "?") for call in part] for part in parts if part]
        self.graphs = self.ops_per_graph
        self.graph_count = len(self.graphs)
        self.break_reasons = breaks
        self.graph_break_count = len(breaks)
        self.op_count = sum(map(len, self.ops_per_graph))
        self.out_guards: list[Any] = []
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
        return "\n".join([*lines, f"Compile Times: {self.compile_times}"])


def _split_at_print(frame: Any, event: str, called: Any) -> None:
    """End the program where the function prints, as PyTorch does; Python tells of it, while a call is explained."""
    region = regions.active.region
    if event == "c_call" and called is print and region is not None and not is_own(frame.f_code.co_filename):
        region.split("print() is called")


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Return a function that calls ``f`` once, as a compiled one, and returns what that has queued.

    A ``print`` counts as a graph break here, as in PyTorch; elsewhere it is none, since Python runs in each call.
    """

    def run(*args: Any, **kwargs: Any) -> ExplainOutput:
        current_session()  # so that there is one
        function = getattr(f, "_torchdynamo_orig_callable", getattr(f, "_orig_mod", f))
        before, regions.active.observer = regions.active.observer, regions.Observer()
        observer, begin, profile = regions.active.observer, time.perf_counter(), sys.getprofile()
        sys.setprofile(_split_at_print)
        try:
            regions.run(function, args, kwargs, fullgraph=False)
        finally:
            sys.setprofile(profile)
            regions.active.observer = before
        return ExplainOutput(observer.parts, observer.breaks, time.perf_counter() - begin)

    return run(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else run
