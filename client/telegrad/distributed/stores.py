"""Stores: what the processes of a group share to find each other, for the group of one a dictionary of bytes.

A ``FileStore`` is shared by all that name the same file, and the others by those who have the object.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from telegrad_protocol.errors import NotSupportedError

from .single import USE_INSTEAD

_PATIENCE: Final = timedelta(minutes=5)


class DistError(RuntimeError):
    """The error of PyTorch's communication."""


class DistStoreError(DistError):
    """A key was waited for that nobody set in time."""


class _Entries(dict[str, bytes]):
    """What one store or several hold, and what tells those that wait that it has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()


class Store:
    """Bytes by keys, which are texts. Waiting for a key ends when another thread sets it, or with the timeout."""

    def __init__(self) -> None:
        self._entries = _Entries()
        self._timeout = _PATIENCE

    @property
    def timeout(self) -> timedelta:
        """How long ``get`` and ``wait`` wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long ``get`` and ``wait`` wait."""
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Set what a key stands for, and wake those that wait for it."""
        with self._entries.changed:
            self._entries[key] = _bytes(value)
            self._entries.changed.notify_all()

    def get(self, key: str) -> bytes:
        """Return what a key stands for, once it is set; DistStoreError after the timeout."""
        with self._entries.changed:
            self.wait([key])
            return self._entries[key]

    def add(self, key: str, amount: int) -> int:
        """Add to the number that a key stands for, 0 at first, and return the sum."""
        with self._entries.changed:
            total = int(self._entries.get(key, b"0")) + amount
            self._entries[key] = str(total).encode()
            self._entries.changed.notify_all()
        return total

    def append(self, key: str, value: str | bytes) -> None:
        """Add bytes to what a key stands for."""
        with self._entries.changed:
            self._entries[key] = self._entries.get(key, b"") + _bytes(value)
            self._entries.changed.notify_all()

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Set a key if it stands for what is expected, or is unset and nothing is; return what it stands for then."""
        with self._entries.changed:
            if key not in self._entries and expected_value:
                return _bytes(expected_value)
            if self._entries.get(key, b"") == _bytes(expected_value):
                self._entries[key] = _bytes(desired_value)
                self._entries.changed.notify_all()
            return self._entries[key]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of these keys are set; never waits."""
        return all(key in self._entries for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all keys are set; DistStoreError after the timeout."""
        limit = timeout or self._timeout
        with self._entries.changed:
            if not self._entries.changed.wait_for(lambda: self.check(keys), limit.total_seconds()):
                raise DistStoreError(
                    f"Wait timeout: nobody has set all of {list(keys)} within {limit.total_seconds()} s"
                )

    def delete_key(self, key: str) -> bool:
        """Forget a key, and return whether it was set."""
        with self._entries.changed:
            return self._entries.pop(key, None) is not None

    def num_keys(self) -> int:
        """Return how many keys are set, for a ``PrefixStore`` in all of the store that it is a part of."""
        return len(self._entries)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return what several keys stand for."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys, one after the other."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)


class HashStore(Store):
    """A store that one process has for itself."""


class FileStore(Store):
    """A store that a file has the name of, for a group of one process; stores of the same name share it."""

    _of_files: WeakValueDictionary[str, _Entries] = WeakValueDictionary()

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        _only_one("FileStore", world_size)
        self.path = str(file_name)
        self._entries = self._of_files.setdefault(str(Path(file_name).resolve()), self._entries)


class TCPStore(Store):
    """A store that one process serves and others ask, for a group of one process; nothing is listened to."""

    def __init__(
        self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False,
        timeout: timedelta = _PATIENCE, *args: Any, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        _only_one("TCPStore", world_size)
        self.host, self.port, self._timeout = host_name, port, timeout


class PrefixStore(Store):
    """A part of another store: its keys have a prefix there."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.underlying_store, self._timeout = store, store.timeout
        self._entries = _Prefixed(f"{prefix}/", store._entries)


class _Prefixed(_Entries):
    """The entries of another store whose keys begin with a prefix, without it."""

    def __init__(self, prefix: str, entries: _Entries) -> None:
        super().__init__()
        self.changed = entries.changed
        self._prefix, self._all = prefix, entries

    def __contains__(self, key: object) -> bool:
        return f"{self._prefix}{key}" in self._all

    def __getitem__(self, key: str) -> bytes:
        return self._all[self._prefix + key]

    def __setitem__(self, key: str, value: bytes) -> None:
        self._all[self._prefix + key] = value

    def get(self, key: str, default: Any = None) -> Any:
        return self._all.get(self._prefix + key, default)

    def pop(self, key: str, *default: Any) -> Any:
        return self._all.pop(self._prefix + key, *default)

    def __len__(self) -> int:
        return len(self._all)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _only_one(name: str, world_size: int | None) -> None:
    if world_size is not None and world_size > 1:
        raise NotSupportedError(f"distributed.{name}: a group has one process, not {world_size}; {USE_INSTEAD}")
