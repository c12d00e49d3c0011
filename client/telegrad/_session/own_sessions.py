"""The sessions of this user on a server, as the command line lists and ends them. Opens none."""

from __future__ import annotations

import time
from typing import Any, Final

import httpx

from telegrad._transport.address import parse_address
from telegrad._transport.http import http_client
from telegrad._transport.websocket import refusal
from telegrad_protocol.errors import ConnectError

from .handshake import credentials, session_path
from .owner import owner_secret

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))
_TITLES: Final = ("SESSION", "OPENED", "IDLE", "LEASE LEFT", "STATE", "WORKER", "DEVICES AND MEMORY", "CLIENT")


def list_sessions(url: str, token: str | None) -> list[dict[str, Any]]:
    """Return the open sessions that this user has opened, the oldest first, as the server describes them."""
    sessions: list[dict[str, Any]] = _ask("GET", url, "", token).json()
    return sessions


def end_session(url: str, token: str | None, session: str) -> None:
    """End a session that this user has opened, and free what it holds."""
    _ask("DELETE", url, f"/{session_path(session)}", token)


def table_of(sessions: list[dict[str, Any]]) -> str:
    """Return sessions as a table for people."""
    rows = [_TITLES, *map(_row, sessions)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(session: dict[str, Any]) -> tuple[str, ...]:
    client, memory = session["client"], session["allocated_bytes"]
    names = dict(zip(session["devices"], session["node_devices"], strict=False))
    devices = [f"{names.get(device, device)} {nbytes / 2**20:.1f} MiB" for device, nbytes in memory.items()]
    return (
        session["session"], time.strftime("%Y-%m-%d %H:%M", time.localtime(session["opened"])),
        _duration(session["idle_seconds"]), _duration(session["lease_left_seconds"]),
        "in use" if session["in_use"] else "detached", str(session["worker"]),
        ", ".join(devices) or ", ".join(session["node_devices"]), _name_of(client),
    )  # fmt: skip


def _name_of(client: dict[str, Any]) -> str:
    """Return user, host and process; they come from whoever opened the session, so they are made fit to print."""
    text = f"{client.get('user') or '?'}@{client.get('host') or '?'} process {client.get('pid') or '?'}"
    return "".join(character if character.isprintable() else "?" for character in text)[:80]


def _duration(seconds: float) -> str:
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _ask(method: str, url: str, path: str, token: str | None) -> httpx.Response:
    headers = credentials(token or None, owner=owner_secret())
    try:
        with http_client(parse_address(url)) as http:
            answer = http.request(method, f"/v1/sessions{path}", headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise ConnectError(f"cannot reach a telegrad server at {url}: {error}") from None
    if answer.is_error:
        raise refusal(answer.status_code, answer.content)
    return answer
