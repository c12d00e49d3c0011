"""Where the learning rates are that optimizers take: what a run of a program may have others of each time."""

from __future__ import annotations

from telegrad_protocol.ops import Op


def rate_of(op: Op) -> int | None:
    """Return the position of the learning rate among an optimizer's arguments; None for other operations."""
    return next((p for p, param in enumerate(op.params) if op.updates and param.name == "lr"), None)
