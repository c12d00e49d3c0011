"""The debug mode that tells which lines of the program wait for the server: ``torch.cuda.set_sync_debug_mode``.

Every wait is a round trip, or at least one. What the program waits for on purpose, ``synchronize``, is not told.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

from telegrad_protocol import messages
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, SynchronizationError

from .own_code import depth_of_program

NAMES: Final = ("default", "warn", "error")
"""The names of modes by their number."""
_WAITS: Final[dict[Any, str]] = {
    messages.Read: "the elements of a tensor are read",
    messages.Describe: "the shape of a result depends on data",
}
mode = 0
"""The number of the mode, for all threads. Requests look at it."""


def set_mode(chosen: Any) -> None:
    """Choose a mode by its name or number."""
    global mode
    if not isinstance(chosen, (str, int)):
        raise ArgumentTypeError(f"set_sync_debug_mode: expected a number or a name, not {type(chosen).__name__}")
    if chosen not in (*NAMES, 0, 1, 2):
        raise ArgumentError(f"set_sync_debug_mode: invalid mode {chosen!r}; there are {', '.join(NAMES)} and 0 to 2")
    mode = NAMES.index(chosen) if isinstance(chosen, str) else int(chosen)


def tell(request: Any) -> None:
    """Warn of a request, at the line of the program that makes it, or raise SynchronizationError, as the mode says."""
    is_query = isinstance(request, messages.Query)
    if is_query and request.what == "synchronize":
        return
    reason = _WAITS.get(type(request)) or (f"the server is asked for {request.what}" if is_query else "a pass is run")
    text = f"called a synchronizing operation: {reason}, so this line waits for the server"
    if mode == NAMES.index("error"):
        raise SynchronizationError(f"{text}; cuda.set_sync_debug_mode('warn') only tells of it")
    warnings.warn(text, stacklevel=depth_of_program())
