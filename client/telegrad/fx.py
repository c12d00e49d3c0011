"""What programs touch of ``torch.fx`` when nothing is traced; telegrad runs Python as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from telegrad_protocol.errors import NotSupportedError

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "wrap"]

Wrapped = TypeVar("Wrapped", bound=str | Callable[..., object])


def wrap(fn_or_name: Wrapped) -> Wrapped:
    """Return the function, or its name: a tracer would not look into it, and there is none."""
    return fn_or_name


class _NeverMade:
    """A class that programs name in annotations and ask for with ``isinstance``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotSupportedError(f"fx.{type(self).__name__}: telegrad does not trace Python; call the module")


class Graph(_NeverMade):
    """What a trace records."""


class GraphModule(_NeverMade):
    """The module that a graph makes."""


class Interpreter(_NeverMade):
    """Runs a graph node by node."""


class Node(_NeverMade):
    """One operation of a graph."""


class Proxy(_NeverMade):
    """What stands for a tensor while Python is traced."""


class Tracer(_NeverMade):
    """Traces Python."""


class Transformer(Interpreter):
    """Makes another graph of a graph."""


def symbolic_trace(root: Any, concrete_args: Any = None) -> GraphModule:
    """Refuse: nothing is traced."""
    return GraphModule(root)


def get_proxy_mode() -> None:
    """Return None: no tracing is under way."""
    return None


class SymInt(_NeverMade):
    """A size that is not known while a compiler traces."""


class SymFloat(_NeverMade):
    """Such a number."""


class SymBool(_NeverMade):
    """Such a comparison."""


class _CodeOnlyModule(_NeverMade):
    """A module made of the text of a graph's code."""


Target: TypeAlias = Any
Argument: TypeAlias = Any
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


def _copy_attr(from_module: Any, to_module: Any, target: str) -> None:
    """Set an attribute of modules inside a module, named with dots, to that of another module."""
    *above, last = target.split(".")
    for name in above:
        from_module = getattr(from_module, name)
        if not hasattr(to_module, name):
            setattr(to_module, name, type(from_module)())
        to_module = getattr(to_module, name)
    setattr(to_module, last, getattr(from_module, last))
