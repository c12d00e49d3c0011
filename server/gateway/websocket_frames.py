"""Parts of WebSocket frames that the server writes itself (RFC 6455)."""

from __future__ import annotations

import struct
from typing import Final

MAX_REASON_BYTES: Final = 123
"""RFC 6455 leaves this much room for the reason of a close frame."""


def message_head(length: int) -> bytes:
    """The head of an unmasked binary WebSocket message (RFC 6455, 5.2)."""
    if length < 126:
        return struct.pack("!BB", 0x82, length)
    if length < 1 << 16:
        return struct.pack("!BBH", 0x82, 126, length)
    return struct.pack("!BBQ", 0x82, 127, length)


def close_reason(reason: str) -> str:
    """A reason cut to the length that a close frame has room for."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
