"""The secret that owns a user's sessions: who has it can list, end and attach to them, from any process.

It is a file that only the user can read, made at first use, so that sessions can be found again after a program died.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
from functools import cache
from pathlib import Path
from typing import Final

from telegrad_protocol.errors import ConfigurationError

LEAST_CHARACTERS: Final = 16
VARIABLE: Final = "TELEGRAD_OWNER"


def owner_secret() -> str:
    """Return the value of ``TELEGRAD_OWNER``, else what the user's file holds; this process's own where there is none.

    Raises ConfigurationError for a value that is no secret.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return _from_file(_path()) or _of_this_process()
    if len(given) < LEAST_CHARACTERS or not (given.isascii() and given.isprintable()):
        raise ConfigurationError(f"{VARIABLE}: expected at least {LEAST_CHARACTERS} printable ASCII characters")
    return given


def user_name() -> str:
    """Return the name of the user as the system knows it; empty where it knows none."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return ""


def _path() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(folder) / "telegrad" / "owner"


def _from_file(path: Path) -> str | None:
    """Return the secret in the file, which is made if it is not there; None where that cannot be."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if not path.exists():
            _make(path)
        secret = path.read_text("ascii").strip()
        if len(secret) >= LEAST_CHARACTERS and secret.isprintable():
            return secret
    return None


def _make(path: Path) -> None:
    """Make the file at once with its content: another process may do the same, and then one of the two stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".owner.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


@cache
def _of_this_process() -> str:
    return secrets.token_urlsafe(24)
