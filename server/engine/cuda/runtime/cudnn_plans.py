"""Which plan executes a cuDNN graph: the first one that its heuristics propose and that can be built.

``library`` is the module ``cudnn`` throughout. Knows nothing of operations, sessions or launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

LARGEST_WORKSPACE: Final = 4 << 30


def refusals(library: Any) -> tuple[type[Exception], ...]:
    """Return what the library raises where it has no plan."""
    return library.cudnnGraphNotSupportedError, RuntimeError, ValueError


def ask(library: Any, describe: Callable[[], Any], avoid: Sequence[str]) -> Any:
    """Return a graph with the first plan that the heuristics propose and that can be built.

    The second list of proposals, whose plans serve where no other does, is asked for only where the first one has none.
    It gets a graph of its own: what is known of plans by their numbers would not hold for two lists.
    """
    try:
        return _ask(library, describe, library.heur_mode.A, avoid)
    except refusals(library):
        return _ask(library, describe, library.heur_mode.FALLBACK, avoid)


def _ask(library: Any, describe: Callable[[], Any], mode: Any, avoid: Sequence[str]) -> Any:
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
            return graph
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
