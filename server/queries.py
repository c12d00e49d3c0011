"""Questions that travel in the stream of instructions, answered in order with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from telegrad_protocol.errors import ArgumentError, ProtocolError
from telegrad_protocol.meta import Device

import numpy as np

if TYPE_CHECKING:
    from .engine.backend import Backend
    from .session import Session


def answer(session: Session, what: str, args: list[Any]) -> Any:
    """The answer to question ``what``, made of MessagePack's types."""
    question = _QUESTIONS.get(what)
    if question is None:
        raise ProtocolError(f"unknown query {what!r}; there are: {', '.join(_QUESTIONS)}")
    return question(session, *args)


def _backend(session: Session, device: str) -> Backend:
    return session.host.backend(device)


def _synchronize(session: Session, device: str = "") -> None:
    for backend in (_backend(session, device),) if device else session.host.backends.values():
        backend.synchronize()


def _memory_stats(session: Session, device: str = "", mine: bool = True) -> dict[str, Any]:
    return _backend(session, device).allocator.memory_stats(session.number if mine else None)


def _memory_summary(session: Session, device: str = "", abbreviated: bool = False, mine: bool = True) -> str:
    allocator = _backend(session, device).allocator
    return allocator.memory_summary(session.number if mine else None, abbreviated)


def _memory_snapshot(session: Session, device: str = "") -> dict[str, Any]:
    return _backend(session, device).allocator.memory_snapshot()


def _reset_peak(session: Session, device: str = "") -> None:
    _backend(session, device).allocator.reset_peak(session.number)


def _reset_accumulated(session: Session, device: str = "") -> None:
    _backend(session, device).allocator.reset_accumulated(session.number)


def _empty_cache(session: Session, device: str = "") -> None:
    _backend(session, device).allocator.empty_cache()


def _mem_get_info(session: Session, device: str = "") -> tuple[int, int]:
    return _backend(session, device).memory_info()


def _device_properties(session: Session, device: str = "") -> dict[str, Any]:
    return _backend(session, device).properties()


def _get_rng_state(session: Session, device: str) -> bytes:
    return bytes(session.context.generators[Device(device)].get_state())


def _set_rng_state(session: Session, device: str, state: bytes) -> None:
    if len(state) != 16:
        raise ArgumentError(f"set_rng_state: expected 16 bytes, got {len(state)}")
    session.context.generators[Device(device)].set_state(np.frombuffer(state, np.uint8))


def _initial_seed(session: Session, device: str) -> int:
    return session.context.generators[Device(device)].initial_seed()


def _seed(session: Session) -> int:
    """Seed every generator from one random number, and tell it."""
    generators = list(session.context.generators.values())
    seed = generators[0].seed()
    for generator in generators:
        generator.manual_seed(seed)
    return seed


def _trace(session: Session) -> list[str]:
    lines = session.context.trace or []
    if session.context.trace is not None:
        session.context.trace = []
    return lines


def _tensor_count(session: Session) -> int:
    return len(session.values)


_QUESTIONS: dict[str, Callable[..., Any]] = {
    "synchronize": _synchronize, "memory_stats": _memory_stats, "memory_summary": _memory_summary,
    "memory_snapshot": _memory_snapshot, "reset_peak": _reset_peak, "reset_accumulated": _reset_accumulated,
    "empty_cache": _empty_cache, "mem_get_info": _mem_get_info, "device_properties": _device_properties,
    "get_rng_state": _get_rng_state, "set_rng_state": _set_rng_state, "initial_seed": _initial_seed, "seed": _seed,
    "trace": _trace, "tensor_count": _tensor_count,
}  # fmt: skip
