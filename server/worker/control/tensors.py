"""Tensors of a session on behalf of HTTP: what they are, their elements in and out, forgetting them."""

from __future__ import annotations

from server.engine.autograd.inplace import requires_grad
from server.engine.value import Value
from server.ipc import requests
from server.ipc.requests import TensorInfo
from server.session.handles import TensorCopy
from server.session.requests import answers
from server.session.state import SessionState
from server.session.tensors import begin_upload, forget
from telegrad_protocol import dtypes
from telegrad_protocol.errors import ProtocolError, UnknownIdError
from telegrad_protocol.messages import CHUNK_BYTES


def describe_value(id: int, value: Value) -> TensorInfo:
    """Describe a value as HTTP shows it."""
    meta = value.meta
    return TensorInfo(
        id, meta.dtype.name, meta.shape, meta.strides, meta.offset, meta.device.name, requires_grad(value)
    )


@answers(requests.Describe)
def describe(state: SessionState, request: requests.Describe) -> list[TensorInfo]:
    """Describe tensors."""
    return [describe_value(id, state.value(id)) for id in request.ids]


@answers(requests.Free)
def free(state: SessionState, request: requests.Free) -> None:
    """Forget all of the tensors, or none where one does not exist."""
    missing = [id for id in request.ids if id not in state.values]
    if missing:
        raise UnknownIdError(f"the session has no tensor number {missing[0]}")
    forget(state, request.ids)


@answers(requests.UploadBegin)
def upload_begin(state: SessionState, request: requests.UploadBegin) -> int:
    """Allocate the tensor, and return the number of its upload."""
    upload = begin_upload(state, request.id, request.device, request.shape, dtypes.named(request.dtype))
    return state.handles.add_upload(upload)


@answers(requests.UploadChunk)
def upload_chunk(state: SessionState, request: requests.UploadChunk) -> None:
    """Store a piece."""
    if len(request.data) > CHUNK_BYTES:
        raise ProtocolError(f"a chunk of {len(request.data)} bytes; the most is {CHUNK_BYTES}")
    state.handles.upload(request.upload).write(request.offset, request.data)


@answers(requests.UploadEnd)
def upload_end(state: SessionState, request: requests.UploadEnd) -> TensorInfo | None:
    """Give the tensor its id, or drop what came."""
    if not request.commit:
        state.handles.remove_upload(request.upload)
        return None
    upload = state.handles.upload(request.upload)
    state.handles.remove_upload(request.upload)
    value = state.values[upload.id] = upload.finish()
    return describe_value(upload.id, value)


@answers(requests.ReadBegin)
def read_begin(state: SessionState, request: requests.ReadBegin) -> requests.ReadInfo:
    """Begin to copy the elements as they are now."""
    value = state.value(request.id)
    copy = TensorCopy(value)
    return requests.ReadInfo(state.handles.add_copy(copy), describe_value(request.id, value), copy.nbytes)


@answers(requests.ReadChunk)
def read_chunk(state: SessionState, request: requests.ReadChunk) -> memoryview | None:
    """Return a piece, or None while the device has not delivered the elements."""
    return state.handles.copy(request.read).piece(request.offset, request.size)


@answers(requests.ReadEnd)
def read_end(state: SessionState, request: requests.ReadEnd) -> None:
    """Forget the copy."""
    state.handles.remove_copy(request.read)
