"""Rewriting of traced models for inference: normalizations folded into what is before them, dropout left out."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

from telegrad.fx import GraphModule, Tracer, Transformer, symbolic_trace
from telegrad.fx.node import Argument, Node, Target
from telegrad.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, Dropout, Linear, Module
from telegrad.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = ["fuse", "matches_module_pattern", "optimize_for_inference", "remove_dropout", "replace_node_module"]

_PATTERNS: Final = [
    (Conv1d, BatchNorm1d, fuse_conv_bn_eval), (Conv2d, BatchNorm2d, fuse_conv_bn_eval),
    (Conv3d, BatchNorm3d, fuse_conv_bn_eval), (Linear, BatchNorm1d, fuse_linear_bn_eval),
]  # fmt: skip


def _parent_name(target: str) -> tuple[str, str]:
    """Return the path of the module that has a module, and the module's name in it."""
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node and the one before it call modules of exactly these classes, the earlier one first."""
    first = node.args[0] if node.args else None
    nodes = (first, node)
    if not all(isinstance(one, Node) and one.op == "call_module" and one.target in modules for one in nodes):
        return False
    return all(type(modules[one.target]) is kind for kind, one in zip(pattern, nodes, strict=True))  # type: ignore


def replace_node_module(node: Node, modules: dict[str, Any], new_module: Module) -> None:
    """Put a module in the place of the one that a node calls."""
    parent, name = _parent_name(str(node.target))
    modules[str(node.target)] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> Module:
    """Return a traced copy whose normalizations are folded into the convolution or linear layer before them.

    With ``no_trace`` the model is a ``GraphModule`` already. Both layers must be in evaluation mode.
    """
    source: Any = model if inplace else copy.deepcopy(model)
    traced = source if no_trace and isinstance(source, GraphModule) else symbolic_trace(source)
    modules: dict[str, Any] = dict(traced.named_modules())
    for earlier, later, fused in _PATTERNS:
        for node in traced.graph.nodes:
            if matches_module_pattern((earlier, later), node, modules):
                _fold(traced, node, modules, fused)
    traced.graph.lint()
    return GraphModule(traced, traced.graph)  # without the modules that nothing calls any more


def _fold(traced: GraphModule, node: Node, modules: dict[str, Any], fused: Any) -> None:
    """Put what computes both modules in the place of the earlier one, unless something else takes its result."""
    before: Any = node.args[0]
    normalization = modules[str(node.target)]
    if len(before.users) > 1 or not normalization.track_running_stats:
        return
    replace_node_module(before, modules, fused(modules[before.target], normalization))
    node.replace_all_uses_with(before)
    traced.graph.erase_node(node)


class _WithoutDropout(Transformer):
    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(self.submodules[target], Dropout):
            return args[0]
        return super().call_module(target, args, kwargs)


def remove_dropout(model: Module) -> Module:
    """Return the traced model without its layers of dropout."""
    return _WithoutDropout(symbolic_trace(model)).transform()


def optimize_for_inference(
    model: Module, pass_config: dict[str, Any] | None = None, tracer: type[Tracer] = Tracer
) -> Module:  # fmt: skip
    """Return the traced model with normalizations folded into layers before them, and without dropout.

    ``pass_config`` may turn ``conv_bn_fuse`` and ``remove_dropout`` off. Layouts of oneDNN, which PyTorch chooses
    besides, change no result.
    """
    chosen = {"conv_bn_fuse": True, "remove_dropout": True, **(pass_config or {})}
    made = fuse(model) if chosen["conv_bn_fuse"] else model
    made = remove_dropout(made) if chosen["remove_dropout"] else made
    return GraphModule(made, tracer().trace(made))
