"""Leaves of a program that others take the place of: what that changes is done once a run has ended.

A record knows values by what they are, so that a run which is recorded leaves each value its elements until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine.autograd.succession import share, succeed
from server.engine.value import Value
from server.session.state import SessionState
from telegrad_protocol import messages

Successions = tuple[tuple[int, int], ...]
"""For each leaf: the slot of what takes its place, and the leaf's own place among the inputs that are used."""


def successions_in(rows: Sequence[Any], used: Sequence[int]) -> Successions:
    """Return those of a program; ValueError where a leaf is none of its inputs."""
    return tuple([(row.id, used.index(row.former)) for row in rows if row.__class__ is messages.TakePlace])


def take_place(state: SessionState, message: messages.TakePlace) -> None:
    """Let a tensor be the leaf that another one was."""
    value, former = state.value(message.id), state.value(message.former)
    if state.context.recorder is not None:
        share(value, former)
    else:
        state.values[message.id], state.values[message.former] = succeed(value, former)


def end_successions(
    successions: Successions, names: Sequence[tuple[int, Any]], values: Sequence[Value]
) -> list[tuple[int, Any]]:
    """Return what slots name after a run on these values, where leaves have taken the places of others."""
    changed = dict(names)
    for slot, place in successions:
        value = changed.get(slot)
        if value.__class__ is Value:
            changed[slot], _ = succeed(value, values[place])
    return list(changed.items())
