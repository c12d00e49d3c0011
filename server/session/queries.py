"""Queries in the stream of instructions, and the answers about devices, generators and the session itself.

Answers about memory are in ``memory``, about the order of work in ``streams``, about precision in ``switches``.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from server.engine.random import STATE_BYTES, Generator
from server.engine.value import Value
from telegrad_protocol import messages, queries
from telegrad_protocol.errors import ArgumentError, UnknownIdError

from .replies import PendingAnswer
from .requests import Deferred, answer, answers
from .state import SessionState


def answer_query(state: SessionState, query: messages.Query) -> None:
    """Handle the instruction: reply at once, or when the devices have come far enough."""
    value = answer(queries.QUERIES, state, query.what, query.args)
    if isinstance(value, Deferred):
        state.replies.add_pending(PendingAnswer(query.request, *value))
    else:
        state.replies.add(messages.Answer(query.request, value))


def set_seed(state: SessionState, seed: messages.Seed) -> None:
    """Handle the instruction: seed the generator of one device, or of all."""
    only = state.backend(seed.device).device if seed.device else None
    for device, generator in state.context.generators.items():
        if only is None or device is only:
            generator.manual_seed(seed.value)


def note_random_state(state: SessionState, message: messages.RandomState) -> None:
    """Handle the instruction: note the states of all generators, or put them into noted ones."""
    if state.capture is None:
        _note_random_state(state, state.random_states, message)
    else:
        noted = state.capture.random_states
        if message.restores and message.id in state.random_states:
            noted.setdefault(message.id, state.random_states[message.id])
        state.capture.execute("random state", None, lambda args: _note_random_state(state, noted, message), ())


def _note_random_state(state: SessionState, noted: dict[int, Any], message: messages.RandomState) -> None:
    generators = state.context.generators
    if not message.restores:
        noted[message.id] = {device: generator.get_state() for device, generator in generators.items()}
        return
    states = noted.get(message.id)
    if states is None:
        raise UnknownIdError(f"the session has no random state number {message.id}")
    for device, generator in generators.items():
        generator.set_state(states[device])


def _generator(state: SessionState, device: str) -> Generator:
    return state.context.generators[state.backend(device).device]


@answers(queries.MemGetInfo)
def _mem_get_info(state: SessionState, query: queries.MemGetInfo) -> tuple[int, int]:
    return state.backend(query.device).memory_info()


@answers(queries.DeviceProperties)
def _device_properties(state: SessionState, query: queries.DeviceProperties) -> dict[str, Any]:
    return state.backend(query.device).properties()


@answers(queries.DeviceFigure)
def _device_figure(state: SessionState, query: queries.DeviceFigure) -> Any:
    return state.backend(query.device).figure(query.name)


@answers(queries.CanAccessPeer)
def _can_access_peer(state: SessionState, query: queries.CanAccessPeer) -> bool:
    device, peer = state.backend(query.device), state.backend(query.peer)
    return device.can_access_peer(peer.device)


@answers(queries.GetRngState)
def _get_rng_state(state: SessionState, query: queries.GetRngState) -> bytes:
    return bytes(_generator(state, query.device).get_state())


@answers(queries.SetRngState)
def _set_rng_state(state: SessionState, query: queries.SetRngState) -> None:
    if len(query.state) != STATE_BYTES:
        raise ArgumentError(f"set_rng_state: expected {STATE_BYTES} bytes, got {len(query.state)}")
    _generator(state, query.device).set_state(np.frombuffer(query.state, np.uint8))


@answers(queries.InitialSeed)
def _initial_seed(state: SessionState, query: queries.InitialSeed) -> int:
    return _generator(state, query.device).initial_seed()


@answers(queries.Seed)
def _seed(state: SessionState, query: queries.Seed) -> int:
    generators = list(state.context.generators.values())
    seed = generators[0].seed()
    for generator in generators:
        generator.manual_seed(seed)
    return seed


@answers(queries.Storages)
def _storages(state: SessionState, query: queries.Storages) -> list[tuple[int, int, int]]:
    values = state.values_of(query.ids)
    numbers: dict[int, int] = {}
    return [
        (numbers.setdefault(id(value.storage), len(numbers)), value.storage.nbytes, _address(value)) for value in values
    ]


def _address(value: Value) -> int:
    meta = value.meta
    return int(value.storage.block.pointer) + meta.offset * meta.dtype.itemsize if meta.numel else 0


@answers(queries.Trace)
def _trace(state: SessionState, query: queries.Trace) -> list[str]:
    trace = state.context.trace
    lines = list(trace) if isinstance(trace, deque) else []
    if isinstance(trace, deque):
        trace.clear()
    return lines


@answers(queries.TensorCount)
def _tensor_count(state: SessionState, query: queries.TensorCount) -> int:
    return len(state.values)
