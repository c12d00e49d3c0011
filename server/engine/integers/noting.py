"""Runs of operations that note what integers they make, on devices that the host cannot look into."""

from __future__ import annotations

from typing import Any

from server.engine.operators import Run
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops import Op

from .elements import LIMITS, bounds_of, note_bounds
from .rules import PLACES, places_found, rule_of


def noting(op: Op, bound: tuple[Any, ...], outs: tuple[Meta, ...] | None, is_single: bool, run: Run) -> Run:
    """``run``, which notes the bounds of what it makes or writes to, for operations that tell them.

    ``bound`` are the metas that it is called with, ``outs`` those of its results, None where only data tell them.
    """
    name = op.base.name.removesuffix("_")
    if op.mutates not in ((), (0,)):
        return run
    if name in PLACES and not op.mutates and outs is not None:
        run = _noting_places(op, run)
    rule, made = rule_of(name), bound[0] if op.mutates else outs[0] if outs else None
    if rule is None or (made is not None and made.dtype not in LIMITS) or (made is None and outs is not None):
        return run
    names, mutates, chosen = [param.name for param in op.params], bool(op.mutates), run

    def noted(args: Any) -> Any:
        bounds = rule(dict(zip(names, args)), bounds_of)
        result = chosen(args)
        note_bounds(args[0] if mutates else result if is_single else result[0], bounds)
        return result

    return noted


def _noting_places(op: Op, run: Run) -> Run:
    names = [param.name for param in op.params]

    def noted(args: Any) -> Any:
        result = run(args)
        note_bounds(result[1], places_found(dict(zip(names, args))))
        return result

    return noted
