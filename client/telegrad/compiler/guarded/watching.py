"""Calling a function in its rewritten form, with notes of what the call depends on."""

from __future__ import annotations

from typing import Any

from . import purity
from .arguments import Arguments
from .notes import Notes
from .watcher import Watcher


def watched(function: Any, args: Any, kwargs: Any, given: Arguments, notes: Notes, first: int) -> Any:
    """Call a function, and note what the call depends on."""
    given.note_histories()
    notes.given = {id(container): container for container in given.containers}
    notes.given_tensors = given.tensors
    notes.arguments = frozenset([tensor._id for tensor in given.tensors])
    if any([tensor.__class__ not in purity.TENSORS for tensor in given.tensors]):
        notes.refuse("an argument of a class of its own")
    result = Watcher(_nothing, notes, first).call(function, *args, **kwargs)()
    notes.forget()
    return result


def _nothing() -> None:
    """Stands for the function that has called the one that is watched."""
