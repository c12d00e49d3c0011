"""Questions that travel in the stream of instructions, answered in order with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from server.engine.autograd.inplace import requires_grad
from server.engine.random import STATE_BYTES
from telegrad_protocol import messages
from telegrad_protocol.errors import ArgumentError, ProtocolError

from . import memory_queries
from . import streams as ordering
from . import switches as switching
from .memory_queries import Question

if TYPE_CHECKING:
    from server.engine.random import Generator
    from server.engine.value import Backend

    from .session import Session


def describe(session: Session, describe: messages.Describe) -> None:
    """Tell what tensors are like: shape, strides, offset, type, and whether they require a gradient."""
    found = [session.value(id) for id in describe.ids]
    metas = [(v.shape, v.meta.strides, v.meta.offset, v.dtype.code, requires_grad(v)) for v in found]
    session.answers.add(messages.Description(describe.request, metas))


def answer(session: Session, what: str, args: list[Any]) -> Any:
    """The answer to question ``what``, made of MessagePack's types."""
    question = _QUESTIONS.get(what)
    if question is None:
        raise ProtocolError(f"unknown query {what!r}; there are: {', '.join((*_QUESTIONS, *ordering.LATER))}")
    question.check(what, args)
    return question.answer(session, *args)


def _backend(session: Session, device: str) -> Backend:
    return session.host.backend(device)


def _generator(session: Session, device: str) -> Generator:
    return session.context.generators[_backend(session, device).device]


def _mem_get_info(session: Session, device: str = "") -> tuple[int, int]:
    return _backend(session, device).memory_info()


def _device_properties(session: Session, device: str = "") -> dict[str, Any]:
    return _backend(session, device).properties()


def _get_rng_state(session: Session, device: str = "") -> bytes:
    return bytes(_generator(session, device).get_state())


def _set_rng_state(session: Session, device: str, state: bytes) -> None:
    if len(state) != STATE_BYTES:
        raise ArgumentError(f"set_rng_state: expected {STATE_BYTES} bytes, got {len(state)}")
    _generator(session, device).set_state(np.frombuffer(state, np.uint8))


def _initial_seed(session: Session, device: str = "") -> int:
    return _generator(session, device).initial_seed()


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


_QUESTIONS: dict[str, Question] = {
    **memory_queries.QUESTIONS,
    **ordering.QUESTIONS,
    **switching.QUESTIONS,
    "mem_get_info": Question(_mem_get_info, (str,)),
    "device_properties": Question(_device_properties, (str,)),
    "get_rng_state": Question(_get_rng_state, (str,)),
    "set_rng_state": Question(_set_rng_state, (str, bytes), 2),
    "initial_seed": Question(_initial_seed, (str,)),
    "seed": Question(_seed),
    "trace": Question(_trace),
    "tensor_count": Question(_tensor_count),
}
