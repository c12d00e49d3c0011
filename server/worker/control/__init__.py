"""Answers to control requests: what the gateway's HTTP interface asks of a session or of the host. See ``verbs``.

One function per verb, by subject; here they are found, and whatever goes wrong becomes one of our errors. An answer
never fails the session's stream of instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from server.ipc import requests as verbs
from server.session import failures
from telegrad_protocol.errors import ProtocolError, TelegradError

from . import devices, operations, tensors

if TYPE_CHECKING:
    from server.session.session import Session
    from server.worker.host import Host

_SESSION: dict[str, Callable[..., Any]] = {
    "run_ops": operations.run_ops, "backward": operations.backward, "describe": tensors.describe,
    "free": tensors.free, "upload_begin": tensors.upload_begin, "upload_chunk": tensors.upload_chunk,
    "upload_end": tensors.upload_end, "read_begin": tensors.read_begin, "read_chunk": tensors.read_chunk,
    "read_end": tensors.read_end,
}  # fmt: skip
_HOST: dict[str, Callable[..., Any]] = {
    "memory_summary": devices.memory_summary, "memory_stats": devices.memory_stats,
    "memory_snapshot": devices.memory_snapshot,
    "memory_history": devices.memory_history, "devices": devices.devices, "counters": devices.counters,
}  # fmt: skip


def answer_host(host: Host, verb: str, args: list[Any]) -> Any:
    """The answer to a request about the devices."""
    return _answer(_HOST, host, verb, args)


def answer_session(session: Session, verb: str, args: list[Any]) -> Any:
    """The answer to a request about one session's tensors."""
    return _answer(_SESSION, session, verb, args)


def _answer(known: Mapping[str, Callable[..., Any]], whom: Any, verb: str, args: list[Any]) -> Any:
    answer = known.get(verb)
    if answer is None:
        raise ProtocolError(f"unknown request {verb!r}; there are: {', '.join(known)}")
    try:
        return verbs.to_answer(answer(whom, verbs.from_args(verb, args)))
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{verb}: {error}") from error
    except TelegradError:
        raise
    except Exception as error:
        raise failures.known(error, verb) from error
