"""What workers do for most operations, in C where their machine has a compiler: the allocator's usual path, and values.

`telegrad_protocol.native` keeps the machine code. A worker waits for the compiler, once per machine and version of
Python: it serves for long. Knows nothing of the classes whose objects the text works on; who loads it hands them over.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from telegrad_protocol import native

SOURCE: Final = Path(__file__).with_name("worker.c")


@cache
def load() -> Any:
    """Return the module; None where Python is to do without it."""
    return native.load(SOURCE, __name__, waits=True)
