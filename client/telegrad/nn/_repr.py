"""Pieces of the text of modules, and of error messages about them."""

from __future__ import annotations


def indent(text: str) -> str:
    """Return the text with all lines but the first two spaces further right."""
    return text.replace("\n", "\n  ")


def described(what: str) -> str:
    """Return the name of a kind of attribute as messages have it."""
    return "child module" if what == "module" else what
