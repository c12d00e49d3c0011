"""What compiled functions were made of. Knows nothing of how they are called."""

from __future__ import annotations

from typing import Any


def note_original(compiled: Any, function: Any) -> None:
    """Note on a compiled function what it was made of."""
    compiled._torchdynamo_orig_callable = function
    compiled._torchdynamo_wrapper_id = id(compiled)


def original_of(function: Any) -> Any:
    """Return what a compiled function was made of, and None for others.

    A program's own wrapper, which ``functools.wraps`` has given the attributes of a compiled function, is another one.
    """
    if getattr(function, "_torchdynamo_wrapper_id", None) != id(function):
        return None
    return function._torchdynamo_orig_callable
