"""Tensors of a session on behalf of HTTP: what they are, their elements in and out, forgetting them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.engine.autograd.inplace import requires_grad
from server.engine.value import Value
from server.ipc import requests as verbs
from server.ipc.requests import TensorInfo
from server.session.transfers import Incoming, Reading, new_value
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import DTypeError, ProtocolError, UnknownIdError
from telegrad_protocol.messages import CHUNK_BYTES

if TYPE_CHECKING:
    from server.session.session import Session


def describe_value(number: int, value: Value) -> TensorInfo:
    """A value as HTTP knows it."""
    meta = value.meta
    return TensorInfo(
        number, meta.dtype.name, meta.shape, meta.strides, meta.offset, meta.device.name, requires_grad(value)
    )


def describe(session: Session, request: verbs.Describe) -> list[TensorInfo]:
    """What is known of tensors."""
    return [describe_value(number, session.value(number)) for number in request.ids]


def free(session: Session, request: verbs.Free) -> None:
    """Forget all of the tensors, or none."""
    missing = [number for number in request.ids if number not in session.values]
    if missing:
        raise UnknownIdError(f"the session has no tensor number {missing[0]}")
    for number in request.ids:
        session.values.pop(number, None)


def upload_begin(session: Session, request: verbs.UploadBegin) -> int:
    """Allocate what is to come."""
    dtype = BY_NAME.get(request.dtype)
    if dtype is None:
        raise DTypeError(f"unknown dtype {request.dtype!r}: expected one of {', '.join(BY_NAME)}")
    value = new_value(session.host.backend(request.device), request.shape, dtype)
    return session.transfers.begin_upload(Incoming(request.id, value))


def upload_chunk(session: Session, request: verbs.UploadChunk) -> None:
    """Store a piece."""
    if len(request.data) > CHUNK_BYTES:
        raise ProtocolError(f"a chunk of {len(request.data)} bytes; the most is {CHUNK_BYTES}")
    session.transfers.upload(request.upload).write(request.offset, request.data)


def upload_end(session: Session, request: verbs.UploadEnd) -> TensorInfo | None:
    """Make the tensor visible, or drop what came."""
    if not request.commit:
        session.transfers.end_upload(request.upload)
        return None
    incoming = session.transfers.upload(request.upload)
    session.transfers.end_upload(request.upload)
    value = session.values[incoming.id] = incoming.finish()
    return describe_value(incoming.id, value)


def read_begin(session: Session, request: verbs.ReadBegin) -> verbs.ReadInfo:
    """Begin to copy the elements as they are now."""
    value = session.value(request.id)
    reading = Reading(value)
    number = session.transfers.begin_reading(reading)
    return verbs.ReadInfo(number, describe_value(request.id, value), reading.nbytes)


def read_chunk(session: Session, request: verbs.ReadChunk) -> memoryview | None:
    """A piece, if the device has delivered the elements."""
    return session.transfers.reading(request.read).piece(request.offset, request.size)


def read_end(session: Session, request: verbs.ReadEnd) -> None:
    """Let go of the copy."""
    session.transfers.end_reading(request.read)
