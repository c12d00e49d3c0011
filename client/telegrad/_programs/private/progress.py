"""``tqdm``, which packages import from ``torch.hub``: the one that is installed, else one that shows nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any


class _Silent:
    """Iterates over what it is given."""

    def __init__(self, iterable: Iterable[Any] = (), total: int | None = None, **options: Any) -> None:
        self.iterable, self.total, self.n = iterable, total, 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)

    def update(self, n: int = 1) -> None:
        """Count progress."""
        self.n += n

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class tqdm:
    """A bar of progress."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            made: Any = import_module("tqdm").tqdm
        except ImportError:
            made = _Silent
        return made(*args, **kwargs)
