"""Launches of operations that take indices, which a device checks where the host does not know them."""

from __future__ import annotations

from typing import Any

from server.engine import context
from server.engine.value import Launch
from telegrad_protocol.ops import Op

from .ranges import indices_in


def trusting(op: Op, bound: tuple[Any, ...], checked: Launch, unchecked: Launch) -> Launch:
    """``unchecked``, with nothing to be checked, where the host knows that all indices are good; otherwise ``checked``.

    ``bound`` are the arguments with metas in place of tensors. An index that is known costs no check on the device, no
    event, and nothing that has to wait for these.
    """
    indices = indices_in(op, bound)
    if not indices:
        return checked

    def launch(args: Any, outs: Any) -> None:
        checks = context.current.checks
        if checks.covered:
            unchecked(args, outs)
        elif all([one.are_known_to_be_good(args) for one in indices]):
            checks.covered = True
            try:
                unchecked(args, outs)
            finally:
                checks.covered = False
        else:
            checked(args, outs)

    return launch
