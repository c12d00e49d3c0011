"""Making and describing a session's tensors, whichever way a request comes: as an instruction or over HTTP."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from server.engine.autograd.inplace import requires_grad
from server.engine.value import Value
from telegrad_protocol import dtypes, messages
from telegrad_protocol.errors import ProtocolError

from .replies import PendingData
from .state import SessionState
from .uploads import Chunk, TensorUpload, new_value

CHUNK_COST = 16
"""A megabyte that is read counts as this many instructions, so that replies go out before many have piled up."""


def upload(state: SessionState, message: messages.Upload) -> None:
    """Handle the instruction: make the tensor, or begin to, where chunks follow."""
    if state.upload is not None:
        raise ProtocolError(f"an upload begins before that of tensor number {state.upload.id} is complete")
    begun = begin_upload(state, message.id, message.device, message.shape, dtypes.of_code(message.dtype))
    if message.data is not None:
        begun.write(0, message.data)
    if message.data is None and not begun.is_complete:
        state.upload = begun
    else:
        state.values[message.id] = _uploaded(state, begun.finish())


def _uploaded(state: SessionState, value: Value) -> Value:
    """Tell whoever notes what is executed of an uploaded value; returns what the client's number is to stand for."""
    if state.context.recorder is not None:
        state.context.recorder.note_upload(value)
    return value if state.capture is None else state.capture.keep_uploaded(value)


def upload_chunk(state: SessionState, chunk: Chunk) -> None:
    """Handle a chunk of the tensor whose upload has begun; with the last one the tensor is there."""
    begun = state.upload
    if begun is None or begun.id != chunk.owner:
        raise ProtocolError(f"a chunk for tensor number {chunk.owner}, which is not being uploaded")
    begun.write(chunk.offset, chunk.data)
    if begun.is_complete:
        state.values[begun.id] = _uploaded(state, begun.finish())
        state.upload = None


def read(state: SessionState, read: messages.Read) -> int:
    """Handle the instruction: reply with the elements; return what the turn is to count besides."""
    value: Any = state.values.get(read.id)
    if value.__class__ is not Value:
        value = state.value(read.id)
    if state.capture is not None:
        state.capture.refuse(value.backend, "read")
    state.beat(read.id)
    meta, replies = value.meta, state.replies
    nbytes = meta.numel * meta.dtype.itemsize
    if replies.pending:
        replies.make_room(nbytes)
    elif nbytes <= messages.INLINE_BYTES and not replies.outstanding:
        data = value.backend.bytes_at_once(value)
        if data is not None:
            replies.messages.append(messages.Data(read.request, meta.dtype.code, meta.shape, nbytes, data))
            return 0
    replies.add_pending(PendingData(read.request, value))
    return int(nbytes * CHUNK_COST // messages.CHUNK_BYTES)


def free(state: SessionState, message: messages.Free) -> None:
    """Handle the instruction: free what has these numbers."""
    forget(state, message.ids)


def forget(state: SessionState, ids: Collection[int]) -> None:
    """Free tensors and events; ids that the session does not have are no error."""
    remove = state.values.pop
    for id in ids:
        remove(id, None)
    if state.events:
        for id in ids:
            state.events.pop(id, None)
    if state.graphs:
        state.forget_graphs(ids)
    if state.stops or state.passes or state.random_states:
        for id in ids:
            state.random_states.pop(id, None)
            state.stops.pop(id, None)
            state.passes.pop(id, None)
    if state.upload is not None and state.upload.id in ids:
        state.upload = None  # the client was interrupted in the middle of it


def begin_upload(
    state: SessionState, id: int, device: str, shape: tuple[int, ...], dtype: dtypes.DType
) -> TensorUpload:
    """Allocate a tensor whose elements follow; the session does not show it under ``id`` before they are complete."""
    return TensorUpload(id, new_value(state.backend(device), shape, dtype))


def describe(state: SessionState, request: messages.Describe) -> None:
    """Handle the instruction: tell shape, strides, offset, dtype, and whether a gradient is required."""
    values = [state.value(id) for id in request.ids]
    metas = [(v.shape, v.meta.strides, v.meta.offset, v.dtype.code, requires_grad(v)) for v in values]
    state.replies.add(messages.Description(request.request, metas))
