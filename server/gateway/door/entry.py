"""What uvicorn makes of a new connection: the protocol that it begins with."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from .certificate import Certificate
from .connections import Connections
from .http_protocol import LimitedProtocol
from .tls import TlsProtocol


class Entry:
    """Stands for uvicorn's HTTP protocol class: called with what uvicorn gives one, it returns a protocol."""

    def __init__(self, connections: Connections, certificate: Certificate | None) -> None:
        self._connections, self._certificate = connections, certificate

    def __call__(self, **uvicorns: Any) -> asyncio.Protocol:
        make = functools.partial(LimitedProtocol, self._connections, **uvicorns)
        if self._certificate is None:
            return make()
        return TlsProtocol(self._certificate.context(), self._connections, lambda place: make(place=place), make)
