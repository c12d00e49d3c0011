"""Text of modules and of messages about them."""

from __future__ import annotations

from typing import Any


def indent(text: str) -> str:
    """All lines but the first, two spaces further right."""
    return text.replace("\n", "\n  ")


def typename(value: Any) -> str:
    """The class of a value, with its module."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def described(what: str) -> str:
    """How a message names a kind of attribute."""
    return "child module" if what == "module" else what
