"""The zip archives that ``torch.save`` writes: one pickle, and a record of bytes for each storage."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable
from typing import IO, Any

from telegrad_protocol.errors import ArgumentError, NotSupportedError

_TIME = (1980, 1, 1, 0, 0, 0)


class Archive:
    """One archive that is being read."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        self.where = where
        try:
            self._zip = zipfile.ZipFile(file)
            names = [name for name in self._zip.namelist() if name.endswith("/data.pkl")]
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise ArgumentError(f"load: {where} is a damaged zip archive: {error}") from error
        if len(names) != 1:
            raise NotSupportedError(
                f"load: {where} is a zip archive that torch.save did not write, or TorchScript; save a state_dict()"
            )
        self._folder = names[0].removesuffix("data.pkl")
        order = self._folder + "byteorder"
        self.is_little = order not in self._zip.namelist() or self._zip.read(order) == b"little"

    def pickle(self) -> bytes:
        """Return the bytes of the pickle that says what was saved, without its tensors' elements."""
        return self._read("data.pkl")

    def storage(self, key: str, nbytes: int, itemsize: int) -> bytes:
        """Return the bytes of a storage, in little-endian order."""
        data = self._read(f"data/{key}", nbytes)
        return data if self.is_little else in_little_endian(data, itemsize)

    def _read(self, name: str, nbytes: int | None = None) -> bytes:
        try:
            info = self._zip.getinfo(self._folder + name)
            if info.compress_type != zipfile.ZIP_STORED:
                raise NotSupportedError(f"load: {self.where} is compressed; torch.save stores records as they are")
            if nbytes is not None and info.file_size != nbytes:
                raise ArgumentError(
                    f"load: record {name!r} of {self.where} has {info.file_size} bytes, expected {nbytes}"
                )
            return self._zip.read(info)
        except KeyError:
            raise ArgumentError(f"load: {self.where} has no record {name!r}") from None
        except (zipfile.BadZipFile, EOFError, RuntimeError, OSError) as error:
            if isinstance(error, NotSupportedError):
                raise
            raise ArgumentError(f"load: record {name!r} of {self.where} is damaged: {error}") from error


def in_little_endian(data: bytes, itemsize: int) -> bytes:
    """Return elements that are in big-endian order in the other one."""
    swapped = bytearray(len(data))
    for place in range(itemsize):
        swapped[place::itemsize] = data[itemsize - 1 - place :: itemsize]
    return bytes(swapped)


def write_archive(file: IO[bytes], pickle: bytes, storages: Iterable[Callable[[], Any]]) -> None:
    """Write an archive; storages are read one at a time, as they are written."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_record("data.pkl"), pickle)
        archive.writestr(_record("byteorder"), b"little")
        for key, read in enumerate(storages):
            with archive.open(_record(f"data/{key}"), "w", force_zip64=True) as record:
                record.write(read())
        archive.writestr(_record("version"), b"3\n")


def _record(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"archive/{name}", _TIME)
