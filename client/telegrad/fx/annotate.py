"""Types of values in graphs that a program gives itself."""

from __future__ import annotations

from typing import Any

from .proxy import Proxy

__all__ = ["annotate"]


def annotate(val: Any, type: type) -> Any:
    """Give the node of a proxy a type, and return the value. Raises RuntimeError where it has one already."""
    if isinstance(val, Proxy):
        if val.node.type:
            raise RuntimeError(
                f"Tried to annotate a value that already had a type on it! Existing type is {val.node.type} and new "
                f"type is {type}. The type of a function's parameter is said in its signature"
            )
        val.node.type = type
    return val
