"""Messages to bytes and back: batches of instructions or replies, chunks of raw payload, link headers. No I/O.

A frame is a link header (``kind``, ``sequence``, ``acknowledged``; little endian, 17 bytes) and a body. The body of a
``BATCH`` is a MessagePack array of messages; of a ``CHUNK``, ``(owner, offset)`` and raw bytes, where the owner is the
tensor's id on the way up and the request on the way down; an ``ACK``, a ``CLOSE`` and an ``INTERRUPT`` have none. The
sequence of an ``INTERRUPT`` is the number of the ``Interrupt`` instruction up to which the worker drops what has not
started; it overtakes the frames before it.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from .errors import ProtocolError
from .messages import Instruction, Reply
from .programs.messages import DefineProgram, RunProgram

BATCH: Final = 1
CHUNK: Final = 2
ACK: Final = 3
CLOSE: Final = 4
INTERRUPT: Final = 5
SHARED_CHUNK: Final = 6
"""On a direct channel: the place of a chunk in its shared memory."""
OPENED: Final = 7
"""On a direct channel: the worker has taken the socket, and has the frames up to this number."""
PLACED: Final = 8
"""Never sent: what a client's direct channel delivers for a chunk whose bytes it has written where they belong."""

LINK_HEADER: Final = struct.Struct("<BQQ")
CHUNK_HEADER: Final = struct.Struct("<QQ")
PLACED_CHUNK: Final = struct.Struct("<QQQ")
"""The body of a ``PLACED``: owner, offset and end."""

MOST_MALFORMED: Final = 16
"""Of a batch with more malformed instructions than these nothing is executed."""

encoder: Final = msgspec.msgpack.Encoder()
_instructions: Final = msgspec.msgpack.Decoder(list[Instruction | DefineProgram | RunProgram])
_instruction: Final = msgspec.msgpack.Decoder(Instruction | DefineProgram | RunProgram)
_pieces: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_replies: Final = msgspec.msgpack.Decoder(list[Reply])


def encode_batch(messages: list[Any]) -> bytes:
    """Return the body of a ``BATCH`` of these messages."""
    return encoder.encode(messages)


def decode_instructions(body: bytes | memoryview) -> list[Any]:
    """Decode the body of a client's ``BATCH``; ``ProtocolError`` where it is no list of well-formed instructions."""
    try:
        return _instructions.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"malformed batch of instructions: {error}") from error


def decode_each(body: bytes | memoryview) -> list[Any]:
    """Decode the instructions of a ``BATCH`` one by one, with a ``ProtocolError`` in the place of each malformed one.

    ``ProtocolError`` is raised where the body is no list, or more than ``MOST_MALFORMED`` of them are malformed, which
    no client sends by mistake: each error takes far more memory than the byte that brings it about.
    """
    try:
        pieces = _pieces.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"malformed batch of instructions: {error}") from error
    found: list[Any] = []
    malformed = 0
    for piece in pieces:
        try:
            found.append(_instruction.decode(piece))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            found.append(ProtocolError(f"malformed instruction: {error}"))
            malformed += 1
            if malformed > MOST_MALFORMED:
                raise found[-1] from error
    return found


def decode_replies(body: bytes | memoryview) -> list[Reply]:
    """Decode the body of a server's ``BATCH``; ``ProtocolError`` where it is no list of well-formed replies."""
    try:
        return _replies.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"malformed batch of replies: {error}") from error


def split_chunk(body: bytes | memoryview) -> tuple[int, int, memoryview]:
    """Return the owner, the offset and the bytes of a ``CHUNK``."""
    if len(body) < CHUNK_HEADER.size:
        raise ProtocolError(f"chunk of {len(body)} bytes is shorter than its header")
    owner, offset = CHUNK_HEADER.unpack_from(body)
    return owner, offset, memoryview(body)[CHUNK_HEADER.size :]
