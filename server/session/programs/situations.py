"""What decides how a program runs besides its constants: modes, and what its inputs are.

That is found before each run, of some hundreds of inputs, so they are all gone through by functions written in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from server.engine import keys
from server.engine.programs.analysis import shared_memory
from server.engine.value import AutogradMeta, Value
from server.session.state import SessionState
from telegrad_protocol import dtypes

_BACKENDS: Final = keys.CPU | keys.CUDA
_ONLY_VALUES: Final = frozenset((Value,))
_NOTHING: Final = frozenset((type(None),))
_meta_of, _autograd_of, _backend_of = attrgetter("meta"), attrgetter("autograd"), attrgetter("backend")
_keys_of, _base_of = attrgetter("keys"), attrgetter("base")
_node_of, _gradient_of, _needs_gradient = attrgetter("grad_fn"), attrgetter("grad"), attrgetter("requires_grad")


def modes_of(state: SessionState) -> tuple[Any, ...] | None:
    """Return the modes that decide how work is executed; None where somebody watches, or it has to be step by step."""
    return None if state.context.profiler is not None else unwatched_modes_of(state)


def unwatched_modes_of(state: SessionState) -> tuple[Any, ...] | None:
    """Return the same where it does not matter whether somebody profiles."""
    current = state.context
    if (
        current.trace is not None or state.histories or current.own_streams.left_default or current.casts
        or current.recorder is not None
    ):  # fmt: skip
        return None
    return (
        current.excluded, current.included, current.inference, current.autocast, current.switches, current.cudnn,
        dtypes._default,
    )  # fmt: skip


def situation(state: SessionState, values: Sequence[Any], has_passes: bool) -> tuple[Any, ...] | None:
    """Return what decides how a program runs on these inputs, besides its constants.

    None where the instructions have to be executed: the values have a history that a backward pass of the program would
    go through, or are on several devices, or somebody watches.
    """
    current = state.context
    modes = None if current.checks.outstanding else modes_of(state)
    if modes is None:
        return None
    if values and not (_ONLY_VALUES.issuperset(map(type, values)) and _are_on_one_device(values)):
        return None
    metas = tuple(map(_meta_of, values))
    known = list(map(_autograd_of, values))
    tracked = list(filter(None, known))
    if not tracked:
        return modes, metas, shared_memory(values)
    nodes, gradients = list(map(_node_of, tracked)), list(map(_gradient_of, tracked))
    has_nodes = nodes.count(None) < len(nodes)
    if (has_nodes and has_passes) or _has_tracked_views(values, known):
        return None
    which, needs = bytes(map(bool, known)), bytes(map(_needs_gradient, tracked))  # which are compared as one
    histories = bytes([node is not None for node in nodes]) if has_nodes else b""
    given = [gradient for gradient in gradients if gradient is not None]
    kinds = tuple([None if one is None else one.meta for one in gradients]) if given else ()
    return modes, metas, which, needs, histories, kinds, shared_memory([*values, *given])


def _are_on_one_device(values: Sequence[Value]) -> bool:
    return len(set(map(_backend_of, values))) == 1 and all([keys & _BACKENDS for keys in set(map(_keys_of, values))])


def _has_tracked_views(values: Sequence[Value], known: Sequence[AutogradMeta | None]) -> bool:
    """Return whether a value that requires a gradient is a view; ``known`` is autograd's part of each value."""
    bases = list(map(_base_of, values))
    if _NOTHING.issuperset(map(type, bases)):  # values compare their elements, not themselves
        return False
    return any([base is not None and meta is not None and meta.requires_grad for base, meta in zip(bases, known)])
