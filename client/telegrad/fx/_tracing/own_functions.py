"""Classes of proxies answer functions: those of contracts, and telegrad's own in Python while proxies are about."""

from __future__ import annotations

from telegrad._ops.operand_classes import HANDLERS, OVERRIDING, overrides
from telegrad._ops.own_functions import ask_for as ask_for
from telegrad._ops.own_functions import stop_asking_for as stop_asking_for


def answer_functions(kind: type) -> None:
    """Let instances of a class, one of proxies, be asked for what functions give."""
    if overrides.class_handler is not None:
        HANDLERS[kind] = overrides.class_handler
        OVERRIDING.add(kind)
