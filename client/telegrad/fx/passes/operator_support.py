"""What a backend supports: questions about nodes, and ways to put them together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from telegrad.fx.node import Node
from telegrad.nn.modules.module import Module
from telegrad_protocol.dtypes import DType

from .shape_prop import TensorMetadata
from .tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = [
    "OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support",
]  # fmt: skip

IsNodeSupported: TypeAlias = Callable[[Mapping[str, Module], Node], bool]
SupportDict: TypeAlias = Mapping[str, Any]


class OperatorSupportBase(ABC):
    """Whether a backend supports a node."""

    @abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """Whether the backend computes a node; ``submodules`` are those of the graph's module, by path."""


class OperatorSupport(OperatorSupportBase):
    """Support by name: None where any types are supported, else lists of types for each argument and by keyword."""

    def __init__(self, support_dict: SupportDict | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        if self._support_dict[target] is None:
            return True
        by_place, by_name = self._support_dict[target]
        placed = zip(by_place, node.args)
        named = ((types, node.kwargs.get(name)) for name, types in by_name.items())
        return all(_dtype(given) in types for types, given in (*placed, *named) if isinstance(given, Node))


def _dtype(node: Node) -> Any:
    described = node.meta.get("tensor_meta")
    return described.dtype if isinstance(described, TensorMetadata) else node.meta.get("type")


class _Asking(OperatorSupportBase):
    def __init__(self, function: IsNodeSupported) -> None:
        self._function = function

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        return self._function(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """Return the support that a function tells of."""
    return _Asking(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Return the support of what all of these support."""
    return _Asking(lambda submodules, node: all(one.is_node_supported(submodules, node) for one in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Return the support of what one of these supports."""
    return _Asking(lambda submodules, node: any(one.is_node_supported(submodules, node) for one in op_support))


class OpSupports:
    """What is often asked of nodes, to be put together by ``chain``."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: DType) -> OperatorSupportBase:
        """Return what supports nodes without inputs of a type, as ``ShapeProp`` has noted it."""
        return _Asking(lambda _, node: all(_dtype(used) is not dtype for used in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: Sequence[str]) -> OperatorSupportBase:
        """Return what supports nodes of other names."""
        return _Asking(lambda _, node: node.name not in disallow_set)
