"""Where a pattern occurs in a graph: ``SubgraphMatcher``."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from telegrad._library.overloads import OpOverload
from telegrad._tensor.tensor import Tensor
from telegrad.fx._attributes import get_attribute
from telegrad.fx.graph import Graph
from telegrad.fx.node import Node
from telegrad_protocol.errors import ArgumentError

from ._paths import validate_partition

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """Where a pattern occurs: ``nodes_map`` has the graph's node, or a constant, for each node of the pattern."""

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(
            self.anchors, dict(self.nodes_map), list(self.placeholder_nodes), list(self.returning_nodes)
        )


class SubgraphMatcher:
    """Finds a pattern in graphs. What the pattern returns may be used elsewhere; its other nodes may not.

    ``ignore_literals``: constants need not be the same.
    """

    def __init__(
        self, pattern: Graph, match_output: bool = False, match_placeholder: bool = False,
        remove_overlapping_matches: bool = True, ignore_literals: bool = False,
    ) -> None:  # fmt: skip
        if not len(pattern.nodes):
            raise ArgumentError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.users and not node.is_impure():
                raise AssertionError("SubgraphMatcher cannot be initialized with an pattern with dead code")
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        self.pattern_placeholder_nodes = [node for node in pattern.nodes if node.op == "placeholder"]
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        ends = [node for node in output.all_input_nodes if len(node.users) == 1]
        self.pattern_anchors: list[Node] = [output] if match_output else ends

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Return where the pattern occurs; a node with ``node_name_match`` in its name matches any other."""
        candidates = [
            [node for node in graph.nodes if self._nodes_are_equal(anchor, node, node_name_match)]
            for anchor in self.pattern_anchors
        ]
        matches: list[InternalMatch] = []
        anchors = [pair for pair in zip(self.pattern_anchors, candidates, strict=True) if pair[1]]
        if anchors:
            self._extend(anchors, InternalMatch(self.pattern_anchors), matches, node_name_match)
        matches = [match for match in matches if self._is_contained(match) and validate_partition(_computed(match))]
        return _without_overlaps(matches) if self.remove_overlapping_matches else matches

    def _extend(
        self, anchors: list[tuple[Node, list[Node]]], match: InternalMatch, matches: list[InternalMatch], name: str
    ) -> None:
        """Add all matches that agree with ``match`` and have these ends too."""
        if not anchors:
            match.placeholder_nodes = [match.nodes_map[node] for node in self.pattern_placeholder_nodes]
            match.returning_nodes = [match.nodes_map[node] for node in self.pattern_returning_nodes]
            matches.append(match)
            return
        (anchor, candidates), *rest = anchors
        for node in candidates:
            extended = copy.copy(match)
            if self._match_nodes(anchor, node, extended, name):
                self._extend(rest, extended, matches, name)

    def _nodes_are_equal(self, pattern: Node, node: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pattern.op == "placeholder":
            return True
        if node_name_match and node_name_match in node.name:
            return True
        if pattern.op != node.op:
            return False
        if pattern.op in ("placeholder", "output"):
            return True
        return _same_kind_of_attribute(pattern, node) if pattern.op == "get_attr" else pattern.target == node.target

    def _match_nodes(self, pattern: Node, node: Node, match: InternalMatch, node_name_match: str = "") -> bool:
        """Whether a node and all that it is computed from match; what was matched is noted."""
        if pattern in match.nodes_map:
            return match.nodes_map[pattern] is node
        if any(value is node for value in match.nodes_map.values()):
            return False
        if not self._nodes_are_equal(pattern, node, node_name_match):
            return False
        match.nodes_map[pattern] = node
        if pattern.op == "placeholder":
            return True
        given = _arguments(pattern, node)
        return given is not None and self._match_all(*given, match)

    def _match_all(self, pattern: Any, values: Any, match: InternalMatch) -> bool:
        """Whether two lists of arguments match."""
        if len(pattern) != len(values):
            return False
        return all(self._match_one(wanted, value, match) for wanted, value in zip(pattern, values, strict=True))

    def _match_one(self, wanted: Any, value: Any, match: InternalMatch) -> bool:
        if isinstance(wanted, Node) and isinstance(value, Node):
            return self._match_nodes(wanted, value, match)
        if isinstance(wanted, (list, tuple)) and isinstance(value, (list, tuple)):
            return self._match_all(wanted, value, match)
        return self._match_literal(wanted, value, match) or self.ignore_literals

    @staticmethod
    def _match_literal(wanted: Any, value: Any, match: InternalMatch) -> bool:
        if isinstance(wanted, Node):
            if wanted.op != "placeholder":
                return False
            known = match.nodes_map.setdefault(wanted, value)
            return bool(known == value)
        return not isinstance(value, Node) and type(value) is type(wanted) and bool(value == wanted)

    def _is_contained(self, match: InternalMatch) -> bool:
        """Whether nothing outside uses nodes of a match that the pattern does not return."""
        inside = {node: pattern for pattern, node in match.nodes_map.items() if pattern.op != "placeholder"}
        inner = [node for node, pattern in inside.items() if pattern not in self.pattern_returning_nodes]
        return all(user in inside for node in inner for user in node.users)


def _computed(match: InternalMatch) -> list[Node]:
    """Return the nodes of a match that are neither inputs nor outputs."""
    return [node for pattern, node in match.nodes_map.items() if pattern.op not in ("placeholder", "output")]


def _without_overlaps(matches: list[InternalMatch]) -> list[InternalMatch]:
    kept: list[InternalMatch] = []
    taken: set[Node] = set()
    for match in matches:
        if taken.isdisjoint(_computed(match)):
            kept.append(match)
            taken.update(_computed(match))
    return kept


def _same_kind_of_attribute(pattern: Node, node: Node) -> bool:
    """Whether both nodes read tensors, which need not be equal."""
    values = [get_attribute(one.graph.owning_module, str(one.target)) for one in (pattern, node)]
    if type(values[0]) is not type(values[1]):
        return False
    if not isinstance(values[0], Tensor):
        raise RuntimeError(f"Unsupported type {values[0]} when matching attributes")
    return True


def _arguments(pattern: Node, node: Node) -> tuple[list[Any], list[Any]] | None:
    """Return the arguments of two calls as lists; None where they are not given in the same way."""
    if len(pattern.args) == len(node.args) and list(pattern.kwargs) == list(node.kwargs):
        return [*pattern.args, *pattern.kwargs.values()], [*node.args, *node.kwargs.values()]
    if pattern.op != "call_function" or not isinstance(pattern.target, OpOverload):
        return None
    return _by_schema(pattern), _by_schema(node)


def _by_schema(node: Node) -> list[Any]:
    values = []
    for place, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name in node.kwargs:
            values.append(node.kwargs[argument.name])
        elif not argument.kwarg_only and place < len(node.args):
            values.append(node.args[place])
        else:
            values.append(argument.default_value)
    return values
