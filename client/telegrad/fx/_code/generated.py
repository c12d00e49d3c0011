"""Generated code as functions: tracebacks and ``inspect`` find its text, which is in no file."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from itertools import count
from typing import Any, Final

_numbers: Final = count()


class _Loader:
    """Gives ``linecache`` the texts that were compiled."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def get_source(self, name: str) -> str | None:
        """Return the generated text that was compiled under this file name; None where it is of another."""
        return self.texts.get(name)


_loader = _Loader()


def function_of(
    text: str, names: dict[str, Any], place: dict[str, Any], method_name: str = "forward"
) -> Callable[..., Any]:
    """Return the function of a text, with these globals; ``place`` tells what was traced, for tracebacks."""
    key = f"<eval_with_key>.{next(_numbers)}"
    if "co_filename" in place:
        key += f" from {place['co_filename']}:{place['co_firstlineno']} in {place['co_name']}"
    _loader.texts[key] = text
    linecache.lazycache(key, {**names, "__file__": key, "__name__": key, "__loader__": _loader})
    own = dict(names)
    exec(compile(text, key, "exec", dont_inherit=True), own)  # noqa: S102 - a graph of this program wrote the text
    made: Callable[..., Any] = own.pop(method_name)
    return made
