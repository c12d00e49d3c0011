"""Instructions as they come in frames: what they may become in memory is bounded before they are decoded.

A byte of MessagePack can be a list of 80 bytes. So frames that are large are looked at piece by piece first.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from server.session.host_memory.account import NODE_BYTES
from server.session.state import SessionState
from telegrad_protocol import wire
from telegrad_protocol.errors import LimitExceededError, ProtocolError
from telegrad_protocol.messages import LoadModule, Upload

SMALL_FRAME: Final = 1 << 13
"""Frames of so many bytes are decoded as they are."""
MOST_DECODED: Final = 48 << 20
"""What the instructions of a frame may take in memory."""
_ITEM_BYTES: Final = 8
_CONTAINER_BYTES: Final = 80
_BYTES_OF_AN_INSTRUCTION: Final = 32
"""What instructions usually have; what is more may be lists of tensors."""
_HELD_BY_A_BYTE: Final = 100
"""What a graph may hold for a byte of a list of tensors, as measured: an edge, a saved tensor."""
_NO_CONTAINERS: Final = bytes([byte for byte in range(256) if not 0x80 <= byte <= 0x9F])
"""All bytes that do not begin a small list or map; what begins a large one is followed by its items."""
_PAYLOADS: Final = tuple(kind.__struct_config__.tag for kind in (LoadModule, Upload))
_pieces: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])


def decoded(state: SessionState, body: memoryview) -> list[Any]:
    """Return a frame's instructions; ProtocolError and LimitExceededError where it has none, or they are too large."""
    nbytes = len(body)
    if nbytes > SMALL_FRAME:
        _check(body)
    instructions = wire.decode_instructions(body)
    note_size(state, nbytes, len(instructions))
    return instructions


def salvaged(state: SessionState, body: memoryview, error: ProtocolError) -> list[Any]:
    """Return what can be decoded of a batch that ``decoded`` has refused with this error, and errors of what cannot.

    What follows a malformed instruction is kept, so that whoever asks for something there is answered with the failure.
    """
    try:
        found = wire.decode_each(body)
    except ProtocolError:
        return [error]
    if not any([isinstance(item, ProtocolError) for item in found]):
        return [error]
    note_size(state, len(body), len(found))
    return found


def note_size(state: SessionState, nbytes: int, count: int) -> None:
    """Count what the graph of so many instructions may hold, where they take more bytes than usual."""
    unusual = nbytes - _BYTES_OF_AN_INSTRUCTION * count
    if unusual > 0:
        state.host_memory.nodes += unusual * _HELD_BY_A_BYTE // NODE_BYTES


def _check(body: memoryview) -> None:
    if _most(body) <= MOST_DECODED:
        return
    try:
        pieces = _pieces.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"malformed batch of instructions: {error}") from error
    size = sum(map(_size, pieces))
    if size > MOST_DECODED:
        raise LimitExceededError(
            f"instructions: a frame of {len(body)} bytes would take {size >> 20} MiB in the worker, and "
            f"{MOST_DECODED >> 20} are allowed; send fewer arguments at once"
        )


def _size(piece: msgspec.Raw) -> int:
    """Return how much an instruction may take in memory, at most; bytes that are data take what they are."""
    view = memoryview(piece)
    return len(view) if len(view) > 1 and view[1] in _PAYLOADS else _most(view)


def _most(view: memoryview) -> int:
    """Return how much bytes may become, at most, whatever they are."""
    return len(view) * _ITEM_BYTES + len(bytes(view).translate(None, _NO_CONTAINERS)) * _CONTAINER_BYTES
