"""``torch.distributed.elastic``'s names for a program that a launcher starts: telegrad starts no process groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


class ChildFailedError(Exception):
    """What a launcher raises where one of its processes failed, for ``except``: nothing here raises it."""


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """Return a function that does what ``fn`` does; where ``fn`` exits with status 0, it returns None.

    PyTorch's also writes what ``fn`` raises into a file for the launcher, and there is none.
    """

    @wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except SystemExit as end:
            if end.code == 0:
                return None
            raise

    return wrapper
