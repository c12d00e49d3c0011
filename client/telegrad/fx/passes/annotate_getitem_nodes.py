"""Types of the parts of tuples and lists whose own types are known."""

from __future__ import annotations

import operator
from typing import Any, get_args, get_origin, get_type_hints

from telegrad.fx.graph import Graph


def annotate_getitem_nodes(graph: Graph) -> None:
    """Give nodes that take a part of a tuple, a list or a named tuple the type that the annotation of it says."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target is operator.getitem:
            whole, place = node.args
            found = _type_of_part(getattr(whole, "type", None), place)
            node.type = found or node.type


def _type_of_part(annotation: Any, place: Any) -> Any:
    kinds = get_args(annotation)
    if get_origin(annotation) is tuple:
        return kinds[0] if len(kinds) == 2 and kinds[1] is ... else kinds[place]
    if get_origin(annotation) is list:
        return kinds[0]
    if hasattr(annotation, "_fields"):
        return get_type_hints(annotation)[annotation._fields[place]]
    return None
