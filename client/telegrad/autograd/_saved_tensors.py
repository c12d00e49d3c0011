"""How functions of the client's program keep the tensors that they save: the pairs of hooks of each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

Pair: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], Any]]


class _SavedTensors(threading.local):
    """The hooks that are in effect in a thread, the innermost last; ``disabled`` says why none may be entered."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.disabled: str | None = None

    @property
    def innermost(self) -> Pair | None:
        """The functions that pack and unpack a tensor; None where there are none."""
        return self.pairs[-1] if self.pairs else None


saved_tensors = _SavedTensors()
