"""Calls of a function whose graphs a backend of the program's own is given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from telegrad._session.current import current_session
from telegrad.compiler import exporting, regions
from telegrad.compiler.counters import counters
from telegrad.compiler.prints import ending_programs
from telegrad.compiler.regions import active

from .graphs import Graphs, OwnBackend
from .naming import names_of
from .written_region import WrittenRegion


def run(function: Callable[..., Any], args: Any, kwargs: Any, options: regions.Options, graphs: Graphs) -> Any:
    """Call a function; the backend is given what it computes, unless nothing is to be compiled."""
    if active.region is not None or active.disabled or exporting.state.is_active:
        return function(*args, **kwargs)
    if active.forced is not None:
        return active.forced(function, args, kwargs, options)
    return _run(function, args, kwargs, options, graphs)


class ForcedBackend:
    """Calls functions with a backend that takes the place of theirs; the graphs of each are kept."""

    def __init__(self, backend: Callable[..., Any]) -> None:
        self._backend = backend
        self._graphs: dict[Any, Graphs] = {}

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: Any, options: regions.Options) -> Any:
        graphs = self._graphs.get(function)
        if graphs is None:
            graphs = self._graphs[function] = Graphs(OwnBackend(self._backend, None, options.fullgraph))
        return _run(function, args, kwargs, options, graphs)


def _run(function: Callable[..., Any], args: Any, kwargs: Any, options: regions.Options, graphs: Graphs) -> Any:
    session = current_session()
    if session.holder is not None or session.blocking or not session.is_open:
        return function(*args, **kwargs)
    before, breaks = graphs.made, counters["graph_break"].total()
    looks = options.fullgraph and graphs.is_new and sys.getprofile() is None
    region = WrittenRegion(session, function, options, graphs, names_of(function, args, kwargs))
    with ending_programs(active) if looks else nullcontext(), region:
        result = function(*args, **kwargs)
    if graphs.made > before:
        _count_frames(1 + counters["graph_break"].total() - breaks)
    return result


def _count_frames(count: int) -> None:
    """Count what PyTorch compiles apart: a function up to its first graph break, and what follows each of them."""
    counters["frames"]["total"] += count
    counters["frames"]["ok"] += count
