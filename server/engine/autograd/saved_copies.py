"""Saved tensors that keep their elements when a program modifies the memory that they are in."""

from __future__ import annotations

import gc

from server.engine import context
from server.engine import functional as F
from server.engine.value import Value
from telegrad_protocol.dtypes import uint8
from telegrad_protocol.meta import Meta

from .graph import SavedTensor


def keep_saved(value: Value) -> None:
    """Let everything that graphs have saved of the memory of ``value``, as it is now, refer to a copy of it.

    Who refers to the memory is asked of Python's garbage collector, so that saving costs nothing where nobody asks.
    """
    storage = value.storage
    holders = [
        holder
        for holder in gc.get_referrers(storage)
        if isinstance(holder, SavedTensor) and holder.version == storage.version
    ]
    if not holders:
        return
    whole = Value(storage, Meta.of((storage.nbytes,), uint8, value.device), value.backend)
    with context.grad_mode(False):
        copy = F.clone(whole)
    for holder in holders:
        _move(holder, copy)


def _move(holder: SavedTensor, copy: Value) -> None:
    holder.storage, holder.version = copy.storage, copy.storage.version
    leaf = holder.value
    if leaf is None:
        holder.array = None
        return
    holder.value = moved = Value(copy.storage, leaf.meta, leaf.backend)  # the same leaf to the graph
    moved.autograd, moved.keys = leaf.autograd, leaf.keys
