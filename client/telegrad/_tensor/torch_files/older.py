"""The files that ``torch.save`` wrote before PyTorch 1.6, and writes on request: five pickles, then bytes of storages.

The pickles are a number that marks such files, their version, what is said of the machine, what was saved, and the keys
of the storages, whose bytes follow in that order, each behind the number of its elements.
"""

from __future__ import annotations

import struct
from typing import IO, Any, Final

from telegrad_protocol.dtypes import uint8
from telegrad_protocol.errors import ArgumentError, NotSupportedError

from .archive import in_little_endian
from .opcodes import Names, interpret_from
from .reading import Storage, TorchNames
from .sharing import Storages
from .writing import pickled

_MARK: Final = 0x1950A86A20F9469CFC6C
_MARK_BEGINS: Final = b"\x8a\x0a" + _MARK.to_bytes(10, "little") + b"."
"""The first pickle, behind the two bytes that tell the version of its instructions."""
_VERSION: Final = 1001
BEGIN_LENGTH: Final = 2 + len(_MARK_BEGINS)


def is_older_file(begin: bytes) -> bool:
    """Whether a file that begins so, with ``BEGIN_LENGTH`` bytes, is one of these."""
    return begin[:1] == b"\x80" and begin[2:] == _MARK_BEGINS


def write_older(file: IO[bytes], content: bytes, storages: Storages) -> None:
    """Write such a file behind what a stream has already; storages are read one at a time, as they are written.

    ``content`` is the pickle of what is saved.
    """
    machine = {
        "protocol_version": _VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4},
    }  # fmt: skip
    keys = [str(number) for number in range(len(storages.readers))]
    mark, version, told, listed = [_plain(thing) for thing in (_MARK, _VERSION, machine, keys)]
    file.write(b"".join([mark, version, told, content, listed]))
    for read, unit in zip(storages.readers, storages.units, strict=True):
        data = read()
        file.write(struct.pack("<q", len(data) // unit))
        file.write(data)


def _plain(thing: Any) -> bytes:
    return pickled(thing, lambda _: None, lambda _: [])


class NamesOfOlderFile(TorchNames):
    """The names in such a file, which notes the storages that it refers to."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.storages: dict[str, Storage] = {}

    def persistent(self, key: Any) -> Any:
        """Return the storage that a pickle refers to, or the class of a module, beside which its source is kept."""
        if key[0] == "module":
            return key[1]
        if len(key) > 5 and key[5] is not None:
            raise NotSupportedError("load: storages that are parts of others are not read; save the tensors anew")
        storage = super().persistent(key)
        self.storages[storage.key] = storage
        return storage


class OlderFile:
    """One such file that is being read; it ends after so many bytes of ``data``, once its storages are found."""

    end: int

    def __init__(self, data: bytes, where: str, names: Names) -> None:
        self._data, self._where = data, where
        _, place = interpret_from(data, 0, names, where)
        version, place = interpret_from(data, place, names, where)
        machine, self._begin = interpret_from(data, place, names, where)
        if version != _VERSION or not isinstance(machine, dict):
            raise NotSupportedError(f"load: {where} is a file of version {version!r}, expected {_VERSION}")
        self._is_little = machine.get("little_endian", True)
        self._places: dict[str, int] = {}

    def read(self, names: Names) -> Any:
        """Return the object that was saved, whose tensors and classes ``names`` makes."""
        return interpret_from(self._data, self._begin, names, self._where)[0]

    def find_storages(self, names: NamesOfOlderFile) -> None:
        """Note where the bytes of the storages lie; ``names`` make tensors without elements meanwhile."""
        _, place = interpret_from(self._data, self._begin, names, self._where)
        keys, place = interpret_from(self._data, place, names, self._where)
        if not isinstance(keys, list):
            raise ArgumentError(f"load: {self._where} is damaged: it has {keys!r} for the keys of its storages")
        for key in map(str, keys):
            storage = names.storages.get(key)
            count = int.from_bytes(self._data[place : place + 8], "little" if self._is_little else "big")
            if storage is None or count != storage.numel:
                raise ArgumentError(f"load: {self._where} is damaged: it has {count} elements under key {key!r}")
            self._places[key] = place + 8
            place += 8 + count * (storage.dtype or uint8).itemsize
        self.end = place

    def storage(self, key: str, nbytes: int, itemsize: int) -> bytes:
        """Return the bytes of a storage, in little-endian order."""
        begin = self._places.get(key)
        data = b"" if begin is None else self._data[begin : begin + nbytes]
        if len(data) != nbytes:
            raise ArgumentError(f"load: {self._where} is damaged: it ends before the elements under key {key!r} do")
        return data if self._is_little else in_little_endian(data, itemsize)
