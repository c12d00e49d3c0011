"""The server's certificate: two PEM files, which are read again when whoever renews them has written them."""

from __future__ import annotations

import logging
import os
import ssl
from typing import Final

from telegrad_protocol.errors import ConfigurationError

log = logging.getLogger(__name__)

_NONE: Final = (0, 0, 0)


class Certificate:
    """What new connections are encrypted with; those that are open keep what they began with."""

    def __init__(self, certificate: str, key: str) -> None:
        self._files = (certificate, key)
        self._seen = self._look()
        self._context = server_context(certificate, key)

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection, of the files as they are now.

        Files that cannot be used, such as half of a renewed pair, are an error in the log, once for each change; the
        last ones that could be used count.
        """
        looks = self._look()
        if looks != self._seen:
            self._seen = looks
            try:
                self._context = server_context(*self._files)
            except ConfigurationError as error:
                log.error("certificate not read again", extra={"reason": error.message})
            else:
                log.info("certificate read again", extra={"certificate": self._files[0]})
        return self._context

    def _look(self) -> list[tuple[int, int, int]]:
        """What changes when one of the files does, a link to another file included."""
        return [_looks_of(path) for path in self._files]


def _looks_of(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return _NONE
    return status.st_ino, status.st_mtime_ns, status.st_size


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """A context with the certificates and the key of two PEM files; ConfigurationError if they cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if isinstance(error, FileNotFoundError) else str(error)
        raise ConfigurationError(f"TELEGRAD_TLS_CERT, TELEGRAD_TLS_KEY: {certificate}, {key}: {reason}") from None
    return context
