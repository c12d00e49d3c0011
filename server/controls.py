"""Answers to control requests: what the gateway's HTTP interface asks of a session or of the host. See ``verbs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from telegrad_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from .host import Host
    from .session import Session


def answer_host(host: Host, verb: str, args: list[Any]) -> Any:
    """The answer to a request about the devices."""
    raise ProtocolError(f"unknown request {verb!r}")


def answer_session(session: Session, verb: str, args: list[Any]) -> Any:
    """The answer to a request about one session's tensors."""
    raise ProtocolError(f"unknown request {verb!r}")
