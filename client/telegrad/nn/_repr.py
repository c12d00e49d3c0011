"""Pieces of the text of modules, and of error messages about them."""

from __future__ import annotations

from typing import Any


def indent(text: str) -> str:
    """Return the text with all lines but the first two spaces further right."""
    return text.replace("\n", "\n  ")


def typename(value: Any) -> str:
    """Return the name of the class of a value, with its module."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def described(what: str) -> str:
    """Return the name of a kind of attribute as messages have it."""
    return "child module" if what == "module" else what
