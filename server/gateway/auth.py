"""Who may talk to the server: a tenant's bearer token for all of it, a session's own key for what is in the session.

Who opens a session may name a secret of his own, the owner, with which he lists, ends and attaches to his sessions.
Sessions of other tenants do not exist for a tenant.

The token is checked before routing, for HTTP and WebSocket alike, so that a new endpoint is closed unless it is listed
here. Secrets are compared in constant time and never logged.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Protocol

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from telegrad_protocol.errors import AuthenticationError, SessionDetachedError, TelegradError, UnknownIdError
from telegrad_protocol.messages import Hello

from .problems import Refused, problem_response
from .settings import is_loopback
from .tenancy.tenants import LOCAL, Tenant, Tenants

SESSION_KEY_HEADER: Final = "Telegrad-Session-Key"
OWNER_HEADER: Final = "Telegrad-Owner"
TENANT: Final = "telegrad.tenant"
"""Where the scope of an admitted request has its tenant."""
OPEN_PATHS: Final = frozenset({
    "/", "/healthz", "/readyz", "/openapi.json", "/docs", "/memory", "/profile",
    "/static/profile.js", "/static/lanes.js", "/static/table.js", "/static/trace.js",
    "/static/memory.js", "/static/memory.css",
    "/static/swagger-ui-bundle.js", "/static/swagger-ui.css", "/static/favicon.png",
})  # fmt: skip


class Keyed(Protocol):
    """A session, as far as access to it is concerned."""

    id: str
    key: str
    tenant: str
    """The name of the tenant who opened it."""
    owner: bytes
    """What ``digest_of`` returns for the secret of its owner; empty where it has none."""
    hello: Hello
    left: SessionDetachedError
    """What a client is told that has left the session."""


def same_secret(given: str, expected: str) -> bool:
    """Compare without telling by the time taken how much of it is right."""
    return hmac.compare_digest(given.encode(), expected.encode())


def check_session_key(session: Keyed, key: str | None) -> None:
    """Refuse whoever does not hold the session's key."""
    if key is None:
        raise Refused(403, AuthenticationError(f"the header {SESSION_KEY_HEADER} is missing"))
    if not same_secret(key, session.key):
        raise Refused(403, AuthenticationError("this is not the key of the session"))


def digest_of(owner: str | None) -> bytes:
    """What is kept of an owner's secret; empty for None."""
    return b"" if owner is None else hashlib.sha256(owner.encode()).digest()


def is_owned(session: Keyed, owner: str | None) -> bool:
    """Whether ``owner`` is the secret that the session was opened with."""
    return owner is not None and hmac.compare_digest(digest_of(owner), session.owner)


def check_key_or_owner(session: Keyed, key: str | None, owner: str | None) -> None:
    """Refuse whoever holds neither the session's key nor the secret of its owner."""
    if key is not None or not is_owned(session, owner):
        if key is None and owner is not None:
            raise Refused(403, AuthenticationError("the session belongs to another owner; its key is needed"))
        check_session_key(session, key)


def check_attachment(session: Keyed, number: int) -> None:
    """Raise why a client may not use the session any more, if it is not the last that attached."""
    if number != session.hello.attachment:
        raise session.left


def tenant_of_request(tenants: Tenants, headers: Headers) -> Tenant:
    """The tenant whose token a request presents; without tokens everybody is local, and must have called loopback.

    The latter keeps web pages from reaching a local server under a name of their own (DNS rebinding). Raises
    ``AuthenticationError``.
    """
    if not tenants.are_asked_for:
        _check_local_name(headers.get("host", ""))
        return LOCAL
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise AuthenticationError("a token is required: send the header 'Authorization: Bearer ...'")
    tenant = tenants.of_token(given.strip())
    if tenant is None:
        raise AuthenticationError("the token is wrong")
    return tenant


def check_admin(tenant: Tenant) -> None:
    """Refuse who may not see what concerns everybody."""
    if not tenant.admin:
        raise Refused(403, AuthenticationError("this shows what all tenants do, so it takes an administrator's token"))


def check_tenant(session: Keyed, tenant: Tenant) -> None:
    """Raise ``UnknownIdError``, as for a session that never was, if the session is another tenant's."""
    if session.tenant != tenant.name:
        raise UnknownIdError(f"there is no session {session.id}")


def _check_local_name(host: str) -> None:
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name and not is_loopback(name):
        raise AuthenticationError(
            f"without a token (TELEGRAD_TOKEN) the server answers only as localhost, not as {name}"
        )


class TokenGuard:
    """Lets nothing but ``OPEN_PATHS`` through without a token; notes whose it is in the scope."""

    def __init__(self, app: ASGIApp, tenants: Tenants) -> None:
        self.app = app
        self.tenants = tenants

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and scope["path"] not in OPEN_PATHS:
            try:
                scope[TENANT] = tenant_of_request(self.tenants, Headers(scope=scope))
            except AuthenticationError as error:
                await _deny(error, scope, receive, send)
                return
        await self.app(scope, receive, send)


async def _deny(error: TelegradError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.message})
        return
    response = problem_response(scope["path"], error, headers={"WWW-Authenticate": "Bearer"})
    await response(scope, receive, send)
