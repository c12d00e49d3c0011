"""When a worker looks for cycles of objects that nothing else holds: rarely while it works, and when nobody calls.

Values are freed by reference counts, and cycles are rare. But each new shape leaves hundreds of objects that stay, and
to look at them again and again takes a tenth of the time in which they are made. Knows nothing of sockets.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final, TypeVar

THRESHOLDS: Final = (10_000, 50, 10)
"""While a worker works, so many new objects are looked at together, since they are in the processor's cache then; and
all of them once more after so many looks."""
QUIET_SECONDS: Final = 0.05
"""Where nothing comes for so long, nobody is kept waiting for the next milliseconds."""
Event = TypeVar("Event")


def wait_and_collect(wait: Callable[[float | None], list[Event]]) -> list[Event]:
    """Return what ``wait`` does, which takes a limit in seconds or None, without a limit.

    What came since objects were last looked at is looked at meanwhile, where nothing comes for a while.
    """
    _, looks, _ = gc.get_count()
    if looks:
        events = wait(QUIET_SECONDS)
        if events:
            return events
        gc.collect(1)
    return wait(None)
