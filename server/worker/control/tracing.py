"""Answers to requests that watch what a session executes."""

from __future__ import annotations

from typing import Final

from server.ipc import requests
from server.session.profiling.profiles import drop_profile, noted_so_far, start_profile
from server.session.requests import answers
from server.session.state import SessionState
from telegrad_protocol import messages
from telegrad_protocol.tracing import recording

WATCH_BYTES: Final = 2 << 20
"""Of a session that is watched the latest events are kept, in so much memory that is charged to it."""


@answers(requests.WatchTrace)
def watch_trace(state: SessionState, request: requests.WatchTrace) -> None:
    """Begin or end to note what the session executes; what a client has begun is left alone."""
    recorder = state.context.profiler
    if request.enabled and recorder is None:
        start_profile(state, with_memory=False, with_devices=True, limit=WATCH_BYTES, wraps=True)
        _tell(state, True)
    elif not request.enabled and recorder is not None and recorder.wraps:
        drop_profile(state)
        _tell(state, False)


def _tell(state: SessionState, is_watched: bool) -> None:
    """Tell the client, which then tells of the program's labels; it learns of it with its next answer."""
    state.replies.add(messages.Answer(messages.WATCHED, is_watched))


@answers(requests.ReadTrace)
def read_trace(state: SessionState, request: requests.ReadTrace) -> bytes:
    """Return the latest events."""
    return recording.encode(noted_so_far(state, request.last))
