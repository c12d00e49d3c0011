"""Which plan executes a cuDNN graph: the first one that its heuristics propose, or the plan of a graph like it.

A plan is an engine and choices of its knobs, and cuDNN writes both into the plan's name. With them a graph of other
sizes gets the same plan, and no heuristics are asked; where the engine refuses these sizes, they are. ``library`` is
the module ``cudnn`` throughout. Knows nothing of operations, sessions or launches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

LARGEST_WORKSPACE: Final = 4 << 30
MOST_KEPT: Final = 1 << 12
"""So many kinds of graphs have a plan that is remembered; beyond that all are forgotten, and asked for again."""
_NAME: Final = re.compile(r"eng(\d+)((?:_k\d+=\d+)*)")
_CHOICE: Final = re.compile(r"_k(\d+)=(\d+)")
_KNOBS: Final = {
    1: "SWIZZLE", 2: "TILE_SIZE", 4: "EDGE", 11: "MULTIPLY", 12: "SPLIT_K_BUF", 13: "TILEK", 14: "STAGES",
    15: "REDUCTION_MODE", 17: "SPLIT_K_SLC", 18: "IDX_MODE", 23: "SPECFILT", 24: "KERNEL_CFG", 25: "WORKSPACE",
    27: "TILE_CGA_M", 28: "TILE_CGA_N", 29: "BLOCK_SIZE", 30: "OCCUPANCY", 31: "ARRAY_SIZE_PER_THREAD",
    33: "SPLIT_COLS", 34: "TILE_ROWS", 35: "TILE_COLS", 36: "LOAD_SIZE", 37: "CTA_COUNT", 38: "STREAM_K",
    39: "SPLIT_P_SLC", 40: "TILE_M", 41: "TILE_N", 42: "WARP_SPEC_CFG",
}  # fmt: skip
"""The members of ``knob_type`` by the numbers of ``cudnnBackendKnobType_t`` in names. A number that meant another knob
would give a plan of another name, which is not taken."""


class Choice(NamedTuple):
    """An engine's number, and the values of its knobs by the names of ``knob_type``."""

    engine: int
    knobs: tuple[tuple[str, int], ...]


def parsed(name: str) -> Choice | None:
    """Return what a plan's name says; None where it says something else, or names a knob that cannot be chosen."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    knobs = [(int(kind), int(value)) for kind, value in _CHOICE.findall(match[2])]
    if any(kind not in _KNOBS for kind, _ in knobs):
        return None
    return Choice(int(match[1]), tuple([(_KNOBS[kind], value) for kind, value in knobs]))


def refusals(library: Any) -> tuple[type[Exception], ...]:
    """Return what the library raises where it has no plan."""
    return library.cudnnGraphNotSupportedError, RuntimeError, ValueError


def ask(library: Any, describe: Callable[[], Any], avoid: Sequence[str]) -> tuple[Any, str]:
    """Return a graph with the first plan that the heuristics propose and that can be built, and the plan's name.

    The second list of proposals, whose plans serve where no other does, is asked for only where the first one has none.
    It gets a graph of its own: what is known of plans by their numbers would not hold for two lists.
    """
    try:
        return _ask(library, describe, library.heur_mode.A, avoid)
    except refusals(library):
        return _ask(library, describe, library.heur_mode.FALLBACK, avoid)


def _ask(library: Any, describe: Callable[[], Any], mode: Any, avoid: Sequence[str]) -> tuple[Any, str]:
    graph = _proposed(library, describe, [mode])
    if avoid:
        graph.deselect_numeric_notes([getattr(library.numerical_note, note) for note in avoid])
    refused: Exception = RuntimeError("no plans are proposed")
    for number in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(number)
        except refusals(library) as error:
            refused = error
        else:
            return graph, graph.get_plan_name_at_index(number)
    raise refused


def ask_all(library: Any, describe: Callable[[], Any]) -> Any:
    """Return a graph with all plans that the heuristics propose, none of them built."""
    return _proposed(library, describe, [library.heur_mode.A, library.heur_mode.FALLBACK])


def _proposed(library: Any, describe: Callable[[], Any], modes: list[Any]) -> Any:
    graph = _described(describe)
    graph.create_execution_plans(modes)
    graph.deselect_workspace_greater_than(LARGEST_WORKSPACE)
    return graph


def _described(describe: Callable[[], Any]) -> Any:
    graph = describe()
    graph.validate()
    graph.build_operation_graph()
    return graph


def borrow(library: Any, describe: Callable[[], Any], name: str) -> Any:
    """Return a graph with the plan of another graph, by its name; None where that does not take this one's sizes."""
    choice = parsed(name)
    if choice is None:
        return None
    knobs = {getattr(library.knob_type, knob): value for knob, value in choice.knobs}
    try:
        graph = _described(describe)
        graph.create_execution_plan(choice.engine, knobs)
        if graph.get_plan_name_at_index(0) != name:
            return None
        graph.deselect_workspace_greater_than(LARGEST_WORKSPACE)
        graph.build_plan_at_index(0)
    except refusals(library):
        return None
    return graph


class KnownPlans:
    """The names of plans that the heuristics proposed, by what graphs have in common beside their sizes."""

    def __init__(self) -> None:
        self._names: dict[Hashable, str] = {}

    def of(self, kind: Hashable) -> str:
        """The name of a plan for graphs of this kind; empty where none is known."""
        return self._names.get(kind, "")

    def note(self, kind: Hashable, name: str) -> None:
        """Remember what was proposed last for a graph of this kind."""
        if len(self._names) >= MOST_KEPT:
            self._names.clear()
        self._names[kind] = name
