"""``torch.PyTorchFileReader``: the records of a file of ``torch.save``, by name."""

from __future__ import annotations

import zipfile
from typing import IO, Any


class PyTorchFileReader:
    """A file of ``torch.save``, whose records are read by name, without the folder that they are in."""

    def __init__(self, name_or_buffer: str | IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(name_or_buffer)
        self._folder = self._zip.namelist()[0].partition("/")[0] + "/"

    def get_record(self, name: str) -> bytes:
        """Return the bytes of a record."""
        return self._zip.read(self._folder + name)

    def has_record(self, name: str) -> bool:
        """Whether there is such a record."""
        return self._folder + name in self._zip.namelist()

    def get_all_records(self) -> list[str]:
        """Return the names of all records."""
        return [name.removeprefix(self._folder) for name in self._zip.namelist()]

    def get_record_offset(self, name: str) -> int:
        """Return how many bytes of the file precede a record, its header included."""
        return self._zip.getinfo(self._folder + name).header_offset

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"PyTorchFileReader has no {name!r} here; torch.load reads tensors")
