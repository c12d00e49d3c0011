"""Clients that leave a session without ending it, and others that take it over."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from fastapi import APIRouter, Request

from server.gateway.auth import check_attachment
from server.gateway.dependencies import Gateway, GatewayHere, OwnSessionHere, SessionHere
from server.gateway.http import models
from server.gateway.problems import Problem
from server.gateway.tenancy.audit import audit
from telegrad_protocol.errors import HandshakeError, SessionDetachedError, SessionInUseError
from telegrad_protocol.messages import Attach, Detach

from .sessions import check_protocol

of_session = APIRouter(
    prefix="/v1/sessions/{session_id}", tags=["sessions"],
    responses={403: {"model": Problem}, 404: {"model": Problem}, 409: {"model": Problem}, 410: {"model": Problem}},
)  # fmt: skip
log = logging.getLogger(__name__)


@of_session.post("/detach", summary="Leave a session", response_model=models.SessionDetached)
async def detach(gateway: GatewayHere, session: SessionHere, wanted: models.DetachSession) -> Any:
    """Free what the client holds, except what the session keeps under names; the session waits for another client."""
    check_attachment(session, wanted.attachment)
    session.change_client(_lease(gateway, wanted), Detach(), SessionDetachedError("the session was detached"))
    log.info("session detached", extra={"session": session.id})
    return {"session": session.id, "lease_seconds": session.hello.lease_seconds}


@of_session.post("/attach", summary="Take a session over", response_model=models.SessionOpened)
async def attach(
    gateway: GatewayHere, request: Request, session: OwnSessionHere, client: models.AttachSession
) -> Any:  # fmt: skip
    """Become the client of a session. Nothing but what it keeps under names is there; a stream tells what that is.

    A session that a client is connected to is refused, unless `takeover` is set.
    """
    check_protocol(client)
    if client.table_hash not in (None, session.hello.table_hash):
        raise HandshakeError("the operation tables of server and client differ: install equal versions")
    if session.is_in_use and not client.takeover:
        raise SessionInUseError(
            f"the session is in use by {_name(session.client)}; detach() there, or take it over with takeover=True"
        )
    lease = _lease(gateway, client)
    described = client.model_dump(exclude_none=True, exclude={"takeover"})
    left = SessionDetachedError(f"another client has attached to the session: {_name(described)}")
    session.change_client(lease, Attach(), left)
    session.client = described
    audit(request.scope, "session attached", session=session.id)
    return msgspec.to_builtins(session.hello)


def _lease(gateway: Gateway, wanted: models.AttachSession | models.DetachSession) -> float | None:
    asked = wanted.lease_seconds
    return None if asked is None else gateway.settings.granted_lease(asked)


def _name(client: Any) -> str:
    """Return what people can tell a client by; it describes itself, so this is cut to a sane length."""
    pid, host = client.get("pid"), client.get("host")
    parts = [f"process {pid}" if isinstance(pid, int) else "", f"on {host}" if isinstance(host, str) else ""]
    return " ".join(filter(None, parts))[:100] or "another client"
