"""The usual path of a call in C, and those of conditions and requests, where a compiler is (0083, 0087, 0117).

``calls.c`` does in one go what ``_ops/call.py``, ``_session/call_sites.py`` and ``_session/sending/send_queue.py`` say,
and what a request passes in ``_session/session.py`` and ``_transport``. It leaves to them whatever is unusual.
`telegrad_protocol.native` says when it is compiled. Nothing depends on it: without it, calls take longer. ``binding``
gives it what it works on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from telegrad_protocol import native

SOURCE: Final = Path(__file__).with_name("calls.c")
ABSENT: Final = object()
"""What stands in conditions for an entry that there is none of."""
_is_looked_for = False
"""Whether it was looked if a process is to compile beside this one."""


def load() -> Any:
    """Return the module; None where Python is to do without, as while it is not compiled."""
    return native.load(SOURCE, __name__)


def compile_beside() -> None:
    """Have it compiled by a process of its own, for programs that start later, where that is wanted and not done."""
    global _is_looked_for
    if not _is_looked_for:
        _is_looked_for = True
        native.compile_beside(SOURCE)
