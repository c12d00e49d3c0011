"""Metadata that nodes take over from those that a pass is at work on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from .node import Node

__all__ = ["annotate", "get_current_meta", "has_preserved_node_meta", "preserve_node_meta", "set_current_meta"]

_TAKEN_OVER: Final = ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "custom")


class _State:
    """What new nodes take over, and whether they do."""

    meta: dict[str, Any]
    is_preserved = False


_state = _State()
_state.meta = {}


@contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Let new nodes take over the metadata of the current node within the block."""
    before = _state.is_preserved, _state.meta
    _state.is_preserved, _state.meta = enable, dict(_state.meta)
    try:
        yield
    finally:
        _state.is_preserved, _state.meta = before


@contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """Make a node the current one within the block."""
    if not (_state.is_preserved and node.meta):
        yield
        return
    before, _state.meta = _state.meta, {**_state.meta, **node.meta}
    try:
        yield
    finally:
        _state.meta = before


@contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Give new nodes these entries of ``meta["custom"]`` within the block, where metadata are taken over."""
    before, _state.meta = _state.meta, {**_state.meta, "custom": {**_state.meta.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        _state.meta = before


def has_preserved_node_meta() -> bool:
    """Whether new nodes take over metadata."""
    return _state.is_preserved


def get_current_meta() -> dict[str, Any]:
    """Return the metadata that they take over."""
    return _state.meta


def take_over(node: Node) -> None:
    """Give a new node the current metadata."""
    node.meta.update({key: copy.copy(_state.meta[key]) for key in _TAKEN_OVER if key in _state.meta})
