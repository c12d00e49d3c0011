"""Instructions that bring a client's data: a tensor at once, or one whose chunks follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from telegrad_protocol import dtypes, messages
from telegrad_protocol.errors import ProtocolError

from .transfers import Chunk, Incoming, new_value

if TYPE_CHECKING:
    from .session import Session


def upload(session: Session, message: messages.Upload) -> None:
    """Make the tensor, or begin to."""
    if session.upload is not None:
        raise ProtocolError(f"an upload begins before that of tensor number {session.upload.id} is complete")
    if not 0 <= message.dtype < len(dtypes.ALL):
        raise ProtocolError(f"unknown dtype code {message.dtype}")
    value = new_value(session.host.backend(message.device), message.shape, dtypes.ALL[message.dtype])
    incoming = Incoming(message.id, value)
    if message.data is not None:
        incoming.write(0, message.data)
    if message.data is None and not incoming.is_complete:
        session.upload = incoming
    else:
        session.values[message.id] = incoming.finish()


def chunk(session: Session, piece: Chunk) -> None:
    """Go on with the tensor that is on its way; it is there when its last chunk is."""
    incoming = session.upload
    if incoming is None or incoming.id != piece.owner:
        raise ProtocolError(f"a chunk for tensor number {piece.owner}, which is not being uploaded")
    incoming.write(piece.offset, piece.data)
    if incoming.is_complete:
        session.values[incoming.id] = incoming.finish()
        session.upload = None
