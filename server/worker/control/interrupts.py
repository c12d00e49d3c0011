"""Interrupts of a session's client, which overtake its stream of instructions."""

from __future__ import annotations

from server.ipc import requests
from server.session.failures import begin_interrupt
from server.session.requests import answers
from server.session.state import SessionState


@answers(requests.Interrupt)
def interrupt(state: SessionState, request: requests.Interrupt) -> None:
    """Have what the session has not started passed over, up to this interrupt in its stream."""
    begin_interrupt(state, request.number)
