"""Loads a program from a file, a bounded piece at a time, since other sessions wait meanwhile."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from server.engine.value import Backend, Value
from server.session.uploads import TensorUpload, new_value
from telegrad_protocol.dtypes import BY_NAME
from telegrad_protocol.errors import ProgramError
from telegrad_protocol.exported import files
from telegrad_protocol.exported.description import Held
from telegrad_protocol.meta import Device

from .program import LoadedProgram, served_device

PART_BYTES: Final = 32 << 20
"""So much is read of a file between two turns of other sessions."""
_CHUNK_BYTES: Final = 1 << 20


class ProgramLoading:
    """A program whose tensors are still being read."""

    def __init__(self, path: str, backends: Mapping[Device, Backend], default_device: Device) -> None:
        """Open a file and check its description. ProgramError where it holds no valid program, or is not there."""
        self._backends, self._default = backends, default_device
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise ProgramError(f"the program's file cannot be opened: {error.strerror}") from None
        try:
            self._contents, self.description = files.read(self._file, os.fstat(self._file.fileno()).st_size)
        except BaseException:
            self._file.close()
            raise
        self._values: dict[int, Value] = {}
        self._waiting = list(self.description.tensors)[::-1]
        self._upload: TensorUpload | None = None
        self._offset = 0

    @property
    def steps(self) -> int:
        """How many operations the program has."""
        return len(self.description.steps)

    def read_part(self) -> LoadedProgram | None:
        """Read a piece; return the program once all is read."""
        left = PART_BYTES
        while self._waiting and left > 0:
            left -= self._read_some(self._waiting[-1], left)
        if self._waiting:
            return None
        self.close()
        return LoadedProgram(self.description, self._values, self._backends, self._default)

    def _read_some(self, held: Held, most: int) -> int:
        entry = self._contents.entries[held.name]
        if self._upload is None:
            device = served_device(self.description, Device(held.device), self._backends, self._default)
            value = new_value(self._backends[device], entry.shape, BY_NAME[entry.dtype])
            self._upload, self._offset = TensorUpload(held.value, value), 0
            self._file.seek(self._contents.start + entry.begin)
        count = min(_CHUNK_BYTES, entry.nbytes - self._offset, most)
        data = self._file.read(count)
        if len(data) != count:
            raise ProgramError("the program's file has become shorter while it was read")
        self._upload.write(self._offset, data)
        self._offset += count
        if self._offset == entry.nbytes:
            self._values[held.value] = self._upload.finish()
            self._upload = None
            self._waiting.pop()
        return max(count, 1)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._upload = None
