"""What ``grad_fn`` of a sparse product is called: in PyTorch the product is one node, whatever it consists of here."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from telegrad._tensor.autograd_graph import OperationName, OperationNode

from .tensor import SparseTensor

_F = TypeVar("_F", bound=Callable[..., Any])


def shown_as(name: str) -> Callable[[_F], _F]:
    """Have the last node of what a function computes be shown under a name; the node must be the function's own."""

    def mark(function: _F) -> _F:
        @wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            return named(function(*args, **kwargs), name)

        return marked  # type: ignore[return-value]

    return mark


def named(result: Any, name: str) -> Any:
    """Return a result, with the node that it was computed by shown under a name."""
    node = (result.stored if isinstance(result, SparseTensor) else result)._node
    if isinstance(node, OperationNode) and isinstance(node.name, OperationName):
        shown = OperationName(name)
        shown.op = node.name.op
        node.name = shown
    return result
