"""Whom the server serves: tenants, told apart by their tokens, and what each of them may use.

``TELEGRAD_TENANTS`` names a TOML file with a table per tenant, which is read again when it changes. Knows neither HTTP
nor sessions.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError

from server.gateway.settings import PREFIX, Allowed, Settings
from telegrad_protocol.errors import ConfigurationError

log = logging.getLogger(__name__)

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Tenant(BaseModel):
    """One tenant. What is absent is as it is set for all: a session's quota, the number of sessions, permissions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="what logs and metrics call it")
    token_sha256: tuple[_Digest, ...] = Field(default=(), description="SHA-256 of its tokens, in hexadecimal digits")
    admin: bool = Field(default=False, description="sees metrics and all memory, and sets what is noted of allocations")
    memory: ByteSize | None = Field(
        default=None, gt=0, description="bytes of each device that its sessions on a worker may have in use together"
    )
    session_memory: ByteSize | None = Field(
        default=None, gt=0, description="bytes of each device that one session may use"
    )
    host_memory: ByteSize | None = Field(
        default=None, gt=0, description="bytes of the host that its sessions on a worker may take besides tensors"
    )
    operations_ahead: int | None = Field(
        default=None, gt=0, description="operations that a session may have launched on a GPU and not completed"
    )
    sessions: int | None = Field(default=None, ge=0, description="sessions that it may have open")
    kernels: Allowed | None = Field(default=None, description="whether it may run CUDA kernels of its own")
    host_code: Allowed | None = Field(default=None, description="whether it may run C++ of its own in workers")
    program_memory: ByteSize | None = Field(
        default=None, ge=0, description="bytes of programs that it may have uploaded; `0`: it may upload none"
    )
    gpus: int | None = Field(default=None, ge=0, description="GPUs that a session may ask for")


SERVER: Final = Tenant.model_construct(name="(server)", session_memory=None)
"""Who is charged for the operator's programs; no file can name a tenant so."""
LOCAL: Final = Tenant(name="local", admin=True)
"""Everybody, where no token is asked for."""


class Tenants:
    """The tenants of a server, by token.

    ``TELEGRAD_TOKEN`` is that of the tenant ``default``, who is an administrator unless ``TELEGRAD_ADMIN_TOKEN`` names
    another. A file that cannot be read at the start raises ``ConfigurationError``; later the last good one counts.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = settings.tenants
        self._fixed = _tenants_of_settings(settings)
        self._by_digest: dict[str, Tenant] = {}
        self._signature: tuple[int, ...] = ()
        self._take(self._read())

    @property
    def are_asked_for(self) -> bool:
        """Whether requests must present a token."""
        return bool(self._path or self._fixed)

    @property
    def names(self) -> frozenset[str]:
        """The names of all tenants that there are now."""
        if not self.are_asked_for:
            return frozenset({LOCAL.name})
        return frozenset(tenant.name for tenant in self._by_digest.values())

    def of_token(self, token: str) -> Tenant | None:
        """The tenant whose token this is. What is compared are digests, whose timing tells nothing of the token."""
        return self._by_digest.get(digest(token))

    def refresh(self) -> bool:
        """Read the file again if it has changed; whether it had, and could be read."""
        if not self._path or self._signature == self._sign():
            return False
        try:
            self._take(self._read())
        except ConfigurationError as error:
            log.error("tenants not read again", extra={"reason": error.message})
            return False
        log.info("tenants read again", extra={"tenants": sorted(self.names)})
        return True

    def _sign(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._path)
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> list[Tenant]:
        if not self._path:
            return []
        self._signature = self._sign()
        try:
            with open(self._path, "rb") as file:
                tables = tomllib.load(file)
        except (OSError, ValueError) as error:  # what is no TOML, or no text
            raise ConfigurationError(f"{PREFIX}TENANTS: {error}") from error
        return [_tenant(name, table) for name, table in tables.items()]

    def _take(self, listed: Iterable[Tenant]) -> None:
        by_digest: dict[str, Tenant] = {}
        for tenant in (*self._fixed, *listed):
            for each in tenant.token_sha256:
                if by_digest.setdefault(each, tenant) is not tenant:
                    raise ConfigurationError(f"{PREFIX}TENANTS: {tenant.name} and {by_digest[each].name} share a token")
        self._by_digest = by_digest


def digest(token: str) -> str:
    """What a file of tenants has in place of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _tenants_of_settings(settings: Settings) -> list[Tenant]:
    tokens = {"default": settings.token, "admin": settings.admin_token}
    return [
        Tenant(
            name=name, admin=name == "admin" or settings.admin_token is None,
            token_sha256=(digest(token.get_secret_value()),),
        )
        for name, token in tokens.items() if token is not None
    ]  # fmt: skip


def _tenant(name: str, table: Any) -> Tenant:
    if not isinstance(table, Mapping):
        raise ConfigurationError(f"{PREFIX}TENANTS: expected a table [{name}], got {name} = {table!r}")
    digests = table.get("token_sha256", ())
    given = {**table, "token_sha256": (digests,) if isinstance(digests, str) else digests}
    try:
        return Tenant(name=name, **given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ConfigurationError(f"{PREFIX}TENANTS: [{name}] {where}: {problem['msg'].lower()}") from None
    except TypeError as error:
        raise ConfigurationError(f"{PREFIX}TENANTS: [{name}]: its name is that of the table: {error}") from None
