"""Which programs there are: files in the operator's directory, and those that tenants have uploaded.

Files are looked at when they are asked for, so that one that is replaced is served anew, and one that is taken away is
not served any more.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from server.gateway.settings import PREFIX, Settings
from server.gateway.tenancy.tenants import SERVER, Tenant
from telegrad_protocol.errors import ArgumentError, LimitExceededError, NotAllowedError, ProgramError, UnknownIdError
from telegrad_protocol.exported.description import ProgramDescription

SUFFIX: Final = ".safetensors"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MOST_UPLOADS: Final = 256
"""So many programs may a tenant have uploaded."""
_MOST_KEPT: Final = 1024
"""Descriptions of so many files are kept."""


class ProgramFile(NamedTuple):
    """A file with a program; ``owner`` is charged for what it holds, and ``signature`` changes when the file does."""

    name: str
    owner: Tenant
    path: str
    nbytes: int
    signature: tuple[int, int, int]


class Catalog:
    """The programs that a server's tenants may call."""

    def __init__(self, settings: Settings) -> None:
        self._shared = Path(settings.programs) if settings.programs else None
        self._uploads = Path(settings.program_uploads) if settings.program_uploads else None
        self._quota = int(settings.program_upload_bytes)
        self._arriving: Counter[str] = Counter()
        """Bytes of the uploads that are under way, by tenant."""
        self._described: dict[tuple[str, tuple[int, int, int]], ProgramDescription] = {}

    def find(self, tenant: Tenant, name: str) -> ProgramFile:
        """Return a tenant's program of this name, or the operator's. UnknownIdError where there is none."""
        check_name(name)
        for owner, folder in self._folders(tenant):
            found = _file(owner, name, folder / f"{name}{SUFFIX}")
            if found is not None:
                return found
        raise UnknownIdError(f"there is no program {name!r}; GET /v1/programs lists them")

    def list(self, tenant: Tenant) -> list[ProgramFile]:
        """Return all programs that a tenant may call, by name; its own come before the operator's of the same name."""
        found: dict[str, ProgramFile] = {}
        for owner, folder in self._folders(tenant):
            for file in _files(owner, folder):
                found.setdefault(file.name, file)
        return [found[name] for name in sorted(found)]

    def _folders(self, tenant: Tenant) -> Iterator[tuple[Tenant, Path]]:
        if self._uploads is not None:
            yield tenant, self._uploads / tenant.name
        if self._shared is not None:
            yield SERVER, self._shared

    async def description_of(self, file: ProgramFile) -> ProgramDescription:
        """Return what a file says of its program. ProgramError where it holds no valid one."""
        key = file.path, file.signature
        known = self._described.get(key)
        if known is None:
            known = await asyncio.to_thread(described, file.path)
            if len(self._described) >= _MOST_KEPT:
                self._described.clear()
            self._described[key] = known
        return known

    def place_for(self, tenant: Tenant, name: str) -> Path:
        """Return where a tenant's upload is to be written, in a folder that is there.

        Raises NotAllowedError where the operator allows no uploads, or not this tenant, and ArgumentError for a name
        that the operator has given to a program.
        """
        check_name(name)
        if self._uploads is None:
            raise NotAllowedError(f"the operator allows no uploads of programs ({PREFIX}PROGRAM_UPLOADS)")
        if tenant.program_memory == 0:
            raise NotAllowedError(f"the tenant {tenant.name} may upload no programs")
        if self._shared is not None and (self._shared / f"{name}{SUFFIX}").exists():
            raise ArgumentError(f"the operator serves a program {name!r}; choose another name")
        folder = self._uploads / tenant.name
        if sum([file.name != name for file in _files(tenant, folder)]) >= MOST_UPLOADS:
            raise LimitExceededError(f"a tenant may have {MOST_UPLOADS} programs; DELETE one")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / f"{name}{SUFFIX}"

    def room_for(self, tenant: Tenant, name: str) -> int:
        """Return how many bytes more a tenant's upload of this name may have, beside its programs and other uploads."""
        folder = self._uploads / tenant.name if self._uploads is not None else None
        held = sum([file.nbytes for file in _files(tenant, folder) if file.name != name]) if folder else 0
        most = self._quota if tenant.program_memory is None else int(tenant.program_memory)
        return max(0, most - held - self._arriving[tenant.name])

    @contextmanager
    def reserving(self, tenant: Tenant, name: str) -> Iterator[Callable[[int], None]]:
        """Give a function that reserves bytes for an upload until the end of the block: others have less room then.

        It raises LimitExceededError where the tenant has no room for so many.
        """
        reserved = 0

        def reserve(nbytes: int) -> None:
            nonlocal reserved
            room = self.room_for(tenant, name)
            if nbytes > room:
                raise LimitExceededError(
                    f"programs: your programs may have {room} bytes more (TELEGRAD_PROGRAM_UPLOAD_BYTES, or "
                    "program_memory of the tenant); DELETE one, or wait for what is being uploaded"
                )
            reserved += nbytes
            self._arriving[tenant.name] += nbytes

        try:
            yield reserve
        finally:
            self._arriving[tenant.name] -= reserved
            if not self._arriving[tenant.name]:
                del self._arriving[tenant.name]

    def remove(self, tenant: Tenant, name: str) -> None:
        """Remove a tenant's own program. UnknownIdError where it has none, NotAllowedError for the operator's."""
        file = self.find(tenant, name)
        if file.owner is SERVER:
            raise NotAllowedError(f"the program {name!r} is the operator's, who takes its file away")
        os.unlink(file.path)


def is_current(file: ProgramFile) -> bool:
    """Whether the file is still there, and the same."""
    return _file(file.owner, file.name, Path(file.path)) == file


def check_name(name: str) -> None:
    """Refuse names that are none of a file's."""
    if not _NAME.fullmatch(name):
        raise ArgumentError(
            f"a program's name has up to 128 letters, digits, '.', '_' and '-', and begins with a letter or a digit, "
            f"not {name!r:.60}"
        )


def described(path: str) -> ProgramDescription:
    """Return what a file says of its program. Its steps are checked by the worker that loads it."""
    from telegrad_protocol.exported import files

    try:
        with open(path, "rb") as file:
            return files.read(file, os.fstat(file.fileno()).st_size, with_steps=False)[1]
    except OSError as error:
        raise ProgramError(f"the program's file cannot be read: {error.strerror}") from None


def _files(owner: Tenant, folder: Path) -> Iterator[ProgramFile]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        if path.name.endswith(SUFFIX) and _NAME.fullmatch(path.name.removesuffix(SUFFIX)):
            found = _file(owner, path.name.removesuffix(SUFFIX), path)
            if found is not None:
                yield found


def _file(owner: Tenant, name: str, path: Path) -> ProgramFile | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return ProgramFile(name, owner, str(path), status.st_size, (status.st_mtime_ns, status.st_size, status.st_ino))
