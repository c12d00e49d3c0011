"""Nodes of the backward graph as a client sees them: how one is reached from another, and what it has saved.

A client has one node for each operation that it called. Here a composite has several, so its last one notes the edges
that the composite was applied to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from server.engine import context, keys
from server.engine import functional as F
from server.engine.dispatcher import COMPOSED
from server.engine.in_c.histories import edge_of
from server.engine.operators import OPERATORS, Operator
from server.engine.value import Value
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import ArgumentError, AutogradError, NotSupportedError
from telegrad_protocol.meta import Meta
from telegrad_protocol.pass_messages import Step

from .gradient_form import Source
from .graph import Edge, Node, SavedTensor, SavedTensorList
from .node import OpNode

_TAKE_NUMBERS_AS_TENSORS: Final = frozenset(("add", "sub", "mul", "div"))
"""Operations whose nodes have an edge for an operand that is a Python number, as PyTorch's have."""
_NAMED_INPUT: Final = (
    "conv",
    "native_",
    "_native",
    "batch_norm",
    "layer_norm",
    "group_norm",
    "rms_norm",
    "grid_sample",
)
"""Beginnings of the names of operations whose first operand PyTorch calls ``input`` there; it is ``self`` elsewhere."""
_OF_NORMS: Final = {"input": "input", "mean": "result1", "rstd": "result2", "num_groups": "group"}
_OTHER_NAMES: Final[dict[str, dict[str, str]]] = {
    "linear": {"input": "mat1", "weight": "mat2"}, "_embedding": {"input": "indices"},
    "_max_pool": {"indices": "result1"},
    **dict.fromkeys(("_layer_norm", "_group_norm", "_batch_norm"), _OF_NORMS),
}  # fmt: skip
"""What PyTorch calls operands and results of some operations, by the operation's name and its own name of them."""


def _note_composite(operator: Operator, args: tuple[Any, ...], result: Any) -> None:
    """Note at the node of a composite's first result what the composite was applied to."""
    first = result[0] if result.__class__ is tuple and result else result
    history = first.autograd if first.__class__ is Value else None
    node = None if history is None else history.grad_fn
    if not isinstance(node, OpNode):
        return
    edges: list[Edge] = []
    lists: list[Edge] = []
    for position in operator.grad_positions:
        arg = args[position]
        if arg.__class__ is Value:
            edge = edge_of(arg)
            if edge is not None:
                if edge[0] is node:
                    return  # the composite has returned an operand as it was
                edges.append(edge)
        elif arg.__class__ is tuple:
            lists += [edge for item in arg if item.__class__ is Value and (edge := edge_of(item)) is not None]
    node.composed = operator, edges + lists if lists else edges


COMPOSED[keys.AUTOGRAD] = _note_composite


class SavedName(NamedTuple):
    """Something that a node's formulas name: a tensor or tensors that it has saved, or a plain value.

    ``kind`` is ``tensor``, ``tensors``, ``dtype`` or ``value``; ``value`` is the number of the tensors, the code of the
    type, or the value itself, which is None for what the node has not saved.
    """

    name: str
    kind: str
    value: Any


def follow(node: Node, steps: Sequence[Step], name: str) -> Node:
    """Return the node that a client reaches by these steps, which is one of the operation ``name``."""
    for number, (op, count, place) in enumerate(steps):
        edges = _edges(node, op)
        if len(edges) != count or not 0 <= place < count:
            raise _unknown(op)
        node = edges[place][0]
        expected = steps[number + 1][0] if number + 1 < len(steps) else name
        while expected != "_to_copy" and _operation(node) == "_to_copy":  # autocast has cast the operand
            node = next(edge for edge in node.edges if edge is not None)[0]
    if not is_of(node, name):
        raise _unknown(name)
    return node


def _edges(node: Node, op: str) -> Sequence[Edge]:
    """Return where the gradients of a client's node flow to, in the order in which the client names its operands."""
    if _composite(node) == op:
        return node.composed[1]  # type: ignore[attr-defined, no-any-return]
    if _operation(node) == op:
        return [edge for edge in node.edges if edge is not None]
    if op in OPERATORS and OPERATORS[op].composite is not None:
        return [(node, 0)]  # it has returned its operand as it was
    raise _unknown(op)


def is_of(node: Node, name: str) -> bool:
    """Whether a node is the last that a call of this operation has made."""
    return bool(name) and name in (_operation(node), _composite(node))


def is_composite(node: Node, name: str) -> bool:
    """Whether a call of this operation has made several nodes, of which this is the last."""
    return _composite(node) == name != _operation(node)


def _operation(node: Node) -> str:
    return node.plan.operator.op.name if isinstance(node, OpNode) else ""


def _composite(node: Node) -> str:
    composed = getattr(node, "composed", None)
    return composed[0].op.name if composed else ""


def _unknown(op: str) -> NotSupportedError:
    return NotSupportedError(
        f"grad_fn: the server's node of {op or 'this operation'} cannot be told from here; take the node from the "
        "grad_fn of the tensor that the operation computed, or use the tensor's register_hook()"
    )


def shown_edges(node: Node) -> tuple[int, ...]:
    """Return the places of those edges of a node that PyTorch's node of the same operation has, too."""
    if not isinstance(node, OpNode) or node.plan.operator.op.base.public in _TAKE_NUMBERS_AS_TENSORS:
        return tuple(range(len(node.edges)))
    positions = node.plan.operator.grad_positions
    if len(positions) != len(node.edges):
        return tuple(range(len(node.edges)))
    return tuple([place for place, position in enumerate(positions) if position not in node.plan.numbers])


def place_of(node: Node, value: Value) -> int | None:
    """Return which of the shown edges that lead somewhere is the one along which gradients of ``value`` flow."""
    edges = [edge for place in shown_edges(node) if (edge := node.edges[place]) is not None]
    own = edge_of(value)
    return edges.index(own) if own in edges else None


def shown_outputs(node: Node) -> frozenset[int]:
    """Return the numbers of the outputs that gradients can reach."""
    constants = node.plan.operator.op.constants if isinstance(node, OpNode) else ()
    return frozenset([n for n, meta in enumerate(node.metas) if meta.dtype.is_differentiable and n not in constants])


def saved_names(node: Node) -> list[SavedName]:
    """Return all that the formulas of a node's operation name, whether this node needs it or not."""
    if not isinstance(node, OpNode):
        return []
    derivatives = node.plan.operator.derivatives.values()
    sources = dict.fromkeys([source for derivative in derivatives for source in derivative.sources])
    return [_described(node, source) for source in sources if source[0] in ("arg", "out", "meta")]


def _described(node: OpNode, source: Source) -> SavedName:
    name, plan = _name(node.plan.operator, source), node.plan
    if source in plan.saved:
        item = node.saved[plan.saved.index(source)] if node.saved else None
        if isinstance(item, SavedTensorList):
            return SavedName(name, "tensors", len(item.items))
        return SavedName(name, "tensor", 1)
    value = plan.constants[plan.fixed.index(source)] if source in plan.fixed else None
    if isinstance(value, Meta):
        return SavedName(name, "value", value.shape)
    if isinstance(value, DType):
        return SavedName(name, "dtype", value.code)
    return SavedName(name, "value", value if _travels(value) else None)


def _travels(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_travels, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _name(operator: Operator, source: Source) -> str:
    where, number = source
    op, others = operator.op, _OTHER_NAMES.get(operator.op.base.name, {})
    if where == "out":
        several = op.returns[number] if op.returns else ""
        return others.get(several, several or "result")
    name = op.params[number].name
    if name in others:
        name = others[name]
    elif name == "input" and not op.base.public.startswith(_NAMED_INPUT):
        name = "self"
    return f"{name}_sym_sizes" if where == "meta" else name


def saved_name(node: OpNode, slot: int) -> str:
    """Return the name of what a node has saved in one of its slots."""
    return _name(node.plan.operator, node.plan.saved[slot])


def read_saved(node: Node, name: str, place: int) -> Value | None:
    """Return a tensor that a node has saved, with its history.

    Raises AutogradError where it was freed, or modified in place since.
    """
    saved = node.saved if isinstance(node, OpNode) else ()
    if saved is None:
        raise AutogradError(
            "trying to backward through the graph a second time, or to read saved tensors after they were freed: pass "
            "retain_graph=True to the first pass to keep them"
        )
    if not isinstance(node, OpNode):
        raise ArgumentError("grad_fn: a node without saved tensors")
    names = [saved_name(node, slot) for slot in range(len(saved))]
    item: Any = saved[names.index(name)] if name in names else None
    if isinstance(item, SavedTensorList):
        item = item.items[place] if 0 <= place < len(item.items) else None
    if not isinstance(item, SavedTensor):
        return None
    with context.grad_mode(True):
        value = item.unpack(node)
        return F.t(value) if name == "mat2" and _operation(node) == "linear" else value  # PyTorch multiplies by it
