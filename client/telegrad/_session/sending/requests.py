"""What a session asks its server: the elements of a tensor, what only the data tell of it, and named questions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from telegrad._transport.chunked_data import ChunkedData, Downloads
from telegrad_protocol import messages
from telegrad_protocol.dtypes import ALL, DType
from telegrad_protocol.meta import Device, Meta


class Requests:
    """The requests of a session, each of which is one round trip."""

    __slots__ = ()
    _downloads: Downloads

    def request(self, make: Callable[[int], Any]) -> Any:
        """Send a request and wait for its answer."""
        raise NotImplementedError

    def read(self, id: int, nbytes: int = 0) -> tuple[DType, tuple[int, ...], memoryview]:
        """Return the elements of a tensor in row-major order: dtype, shape, bytes. One round trip.

        Its ``nbytes``, where they are known, let the first chunks of many arrive where they stay.
        """
        if nbytes > messages.INLINE_BYTES:
            answer = self.request(partial(self._large_read, id, nbytes))
        else:
            answer = self.request(partial(messages.Read, id=id))
        if isinstance(answer, ChunkedData):
            data = answer.message
            assert data is not None
            return ALL[data.dtype], data.shape, memoryview(answer.buffer)
        return ALL[answer.dtype], answer.shape, memoryview(answer.data or b"")

    def _large_read(self, id: int, nbytes: int, request: int) -> messages.Read:
        self._downloads.expect(request, nbytes)
        return messages.Read(request, id)

    def describe(self, ids: tuple[int, ...], devices: tuple[Device, ...]) -> list[tuple[Meta, bool]]:
        """Return the metas of tensors whose shape only the data tell, and whether they require grad. One round trip.

        ``devices`` are where the tensors are.
        """
        answer = self.request(lambda number: messages.Describe(number, ids))
        return [
            (Meta.of(shape, ALL[dtype], device, strides, offset), grad)
            for device, (shape, strides, offset, dtype, grad) in zip(devices, answer.metas, strict=True)
        ]

    def query(self, what: str, *args: Any) -> Any:
        """Ask the server something, in order with the operations. One round trip."""
        return self.request(lambda number: messages.Query(number, what, list(args))).value

    def synchronize(self, device: str = "") -> None:
        """Wait until everything submitted so far has run; raises what failed."""
        self.query("synchronize", device)
