"""``CapabilityBasedPartitioner``: finds the largest parts of a graph that a backend supports, and fuses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Final

from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, _get_qualified_name
from telegrad.fx.passes.operator_support import OperatorSupportBase
from telegrad.fx.passes.utils._paths import leads_back
from telegrad.fx.passes.utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]

_NON_COMPUTE: Final = frozenset(("torch.ops.aten.view", "_operator.getitem"))


class Partition:
    """Nodes that can become one; ``nodes`` has them in the order in which they were added."""

    def __init__(self, id: int | None = None, nodes: Iterable[Node] | None = None) -> None:
        self.id = id
        self.nodes: dict[Node, int | None] = dict.fromkeys(nodes or ())

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node) -> None:
        """Have one more node be in the partition."""
        self.nodes[node] = None

    def remove_node(self, node: Node) -> None:
        """Have a node no more be in the partition."""
        del self.nodes[node]

    def size(self) -> int:
        """Return how many nodes are in the partition."""
        return len(self.nodes)


class _Assignment:
    """Which partition each node is in."""

    def __init__(self) -> None:
        self.partitions: dict[int, Partition] = {}
        self.owners: dict[Node, Partition] = {}

    def put(self, node: Node, partition: Partition | None) -> None:
        """Put a node into a partition, or into none, and drop a partition that has none left."""
        before = self.owners.pop(node, None)
        if before is not None:
            before.remove_node(node)
            if not before.nodes and before.id is not None:
                self.partitions.pop(before.id, None)
        if partition is not None:
            partition.add_node(node)
            self.owners[node] = partition

    def can_join(self, one: Partition, other: Partition) -> bool:
        """Whether no path leads out of two partitions and back, where partitions on the way are passed as one."""

        def passed_with(node: Node) -> Iterable[Node]:
            owner = self.owners.get(node)
            return (node,) if owner is None else owner.nodes

        return not leads_back({**one.nodes, **other.nodes}, passed_with)


class CapabilityBasedPartitioner:
    """Partitions of the nodes of a module's graph that ``operator_support`` supports.

    A partition of one node that computes something is left out unless ``allows_single_node_partition``, or the node's
    function is among ``allowed_single_node_partition_ops``. ``non_compute_ops`` compute nothing. Functions are named as
    ``_operator.add``.
    """

    def __init__(
        self, graph_module: GraphModule, operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False, non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None, **others: Any,
    ) -> None:  # fmt: skip
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = list(non_compute_ops or ())
        self.allowed_single_node_partition_ops = list(allowed_single_node_partition_ops or ())

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self) -> list[Partition]:
        """Return partitions that do not need each other's results in a circle."""
        assignment, numbers = _Assignment(), count()
        order: dict[int, int] = {}
        """By the number of a partition: the first number that was given to one of its nodes; late nodes come first."""
        for node in reversed(list(self.graph_module.graph.nodes)):
            if self._is_node_supported(node):
                number = next(numbers)
                own = assignment.partitions[number] = Partition(number)
                assignment.put(node, own)
                order[number] = number
                self._join(own, assignment, order)
        self._keep_results_with_their_parts(assignment)
        chosen = assignment.partitions.values()
        return [one for one in chosen if self.allows_single_node_partition or self._computes_much(one)]

    def _join(self, own: Partition, assignment: _Assignment, order: dict[int, int]) -> None:
        for number, first in sorted(order.items(), key=lambda item: item[1]):
            other = assignment.partitions.get(number)
            if other is not None and other is not own and assignment.can_join(own, other):
                for node in list(other.nodes):
                    assignment.put(node, own)
                del order[number]
                order[own.id] = min(order[own.id], first)  # type: ignore[index]

    def _keep_results_with_their_parts(self, assignment: _Assignment) -> None:
        """Put what takes a tuple apart where the tuple is made."""
        for node in self.graph_module.graph.nodes:
            if all(user.op == "call_function" and _function(user) == "_operator.getitem" for user in node.users):
                owner = assignment.owners.get(node)
                for user in node.users:
                    if assignment.owners.get(user) is not owner:
                        assignment.put(user, owner)

    def _computes_much(self, partition: Partition) -> bool:
        called = [_function(node) for node in partition.nodes if node.op == "call_function"]
        computing = [name for name in called if name not in _NON_COMPUTE and name not in self.non_compute_ops]
        return len(computing) + sum(name in self.allowed_single_node_partition_ops for name in called) > 1

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Let the module call a module for each partition."""
        return fuse_by_partitions(self.graph_module, [one.nodes for one in partitions], prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Leave what computes nothing out of partitions where these begin and end."""
        for one in partitions:
            for forwards in (True, False):
                for node in self._at_the_edge(one, forwards):
                    one.remove_node(node)

    def _at_the_edge(self, one: Partition, forwards: bool) -> list[Node]:
        removed: dict[Node, None] = {}
        places = {node: place for place, node in enumerate(self.graph_module.graph.nodes)}
        for node in sorted(one.nodes, key=places.__getitem__, reverse=not forwards):
            beside = node.all_input_nodes if forwards else list(node.users)
            is_idle = node.op == "call_function" and _function(node) in self.non_compute_ops
            if is_idle and all(other not in one.nodes or other in removed for other in beside):
                removed[node] = None
        return list(removed)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Return the module, with a call of a module in place of each partition that is proposed."""
        return self.fuse_partitions(self.propose_partitions(), prefix)


def _function(node: Node) -> str:
    return _get_qualified_name(node.target)  # type: ignore[arg-type]
