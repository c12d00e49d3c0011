"""Changes of graphs, and how large their tensors are."""

from __future__ import annotations

from typing import Any, NamedTuple

from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, Target

from .shape_prop import ShapeProp, TensorMetadata

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


class size_bytes(NamedTuple):
    """Bytes of a node's result, and of it together with the parameters that the node reads."""

    output_size: int
    total_size: int


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target
) -> None:  # fmt: skip
    """Have nodes of one kind that call one function call another one, with the same arguments."""
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            node.op, node.target = new_op, new_target


def get_size_of_all_nodes(fx_module: GraphModule, args: Any = None) -> None:
    """Note in ``size_bytes`` of each node how large its result is; ``args`` are run, to learn shapes."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> Any:
    """Return the shape and type of a node's result; RuntimeError where they are not known."""
    found = node.meta.get("tensor_meta")
    if not found:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run."
        )
    return found


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """Return the bytes of a node's result, and of it and what a module that it calls has."""
    total = 0
    if node.op == "call_module":
        module = dict(fx_module.named_modules())[str(node.target)]
        total = sum([one.numel() * one.element_size() for one in (*module.parameters(), *module.buffers())])
    meta: TensorMetadata = get_tensor_meta(node)
    size = meta.shape.numel() * meta.dtype.itemsize
    return size_bytes(size, total + size)
