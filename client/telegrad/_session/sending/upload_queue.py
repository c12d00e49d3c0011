"""The uploads of a session's queue: small ones go with the instructions around them, large ones at once, in chunks."""

from __future__ import annotations

from typing import Final

from telegrad._session.thread_modes import thread
from telegrad_protocol import messages
from telegrad_protocol.errors import CommunicationError
from telegrad_protocol.messages import CHUNK_BYTES, INLINE_BYTES
from telegrad_protocol.meta import Meta

from .send_queue import SendQueue

BATCH_BYTES: Final = 1 << 15
"""A batch is sent when uploads in it have more bytes than this."""


class UploadQueue(SendQueue):
    """A queue of instructions that also sends elements of tensors."""

    def upload(self, meta: Meta, data: memoryview, site: int) -> int:
        """Make a tensor of row-major bytes and return its number. Large data is sent at once, in chunks."""
        id = self.new_id()
        shape, device = meta.shape, meta.device.name
        if len(data) <= INLINE_BYTES:
            self.submit(messages.Upload(id, site, meta.dtype.code, shape, device, bytes(data)), thread.modes)
            self._pending_bytes += len(data)
            if self._pending_bytes > BATCH_BYTES:
                self.flush()
            return id
        upload = messages.Upload(id, site, meta.dtype.code, shape, device)
        paused = self.holder.pause(upload) if self.holder is not None else None
        try:
            with self._sending:
                self._send_in_chunks(upload, data)
            self._poll()
            if paused is not None:
                paused.resume()
        except BaseException:
            self.free(id)
            raise
        return id

    def _send_in_chunks(self, upload: messages.Upload, data: memoryview) -> None:
        self.flush()
        self._uploading = upload
        self._pending.append(self._under_modes(upload))
        self.operations += 1
        self._send_pending(upload)
        try:
            for start in range(0, len(data), CHUNK_BYTES):
                self.transport.send_chunk(upload.id, start, data[start : start + CHUNK_BYTES])
        except CommunicationError as error:
            self._lose(error)
            self._require_open()
        self._uploading = None
