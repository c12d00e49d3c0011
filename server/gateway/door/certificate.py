"""The server's certificate: two PEM files, which are read again when whoever renews them has written them."""

from __future__ import annotations

import logging
import math
import os
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from telegrad_protocol.errors import ConfigurationError

log = logging.getLogger(__name__)

_NONE: Final = (0, 0, 0)
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17
"""Tags of ASN.1: the version, which a certificate may lack, and times whose years have two digits."""
_VALIDITY: Final = 3
"""The place of the times among the fields that follow the version: serial number, algorithm, issuer, validity."""


class Certificate:
    """What new connections are encrypted with; those that are open keep what they began with."""

    def __init__(self, certificate: str, key: str) -> None:
        self._files = (certificate, key)
        self._seen = self._look()
        self._context = server_context(certificate, key)
        self.expires = expiry_of(certificate)
        """When the certificate that is served expires, in seconds since 1970."""

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
                self.expires = expiry_of(self._files[0])
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


def expiry_of(path: str) -> float:
    """Return when the first certificate of a PEM file, a server's own, expires; NaN where that cannot be read."""
    found = _PEM.search(Path(path).read_text())
    try:
        ((_, certificate),) = _elements(ssl.PEM_cert_to_DER_cert(found[0] if found else ""))
        _, signed = next(_elements(certificate))
        fields = [content for tag, content in _elements(signed) if tag != _VERSION]
        _, (tag, last) = _elements(fields[_VALIDITY])
        form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
        return datetime.strptime(last.decode(), form).replace(tzinfo=UTC).timestamp()
    except (ValueError, IndexError, StopIteration):
        return math.nan


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a sequence in ASN.1's distinguished encoding: their tags and contents."""
    at = 0
    while at < len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:
            long = size & 0x7F
            size = int.from_bytes(der[at : at + long], "big")
            at += long
        yield tag, der[at : at + size]
        at += size
